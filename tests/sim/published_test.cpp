// Forecasts against a published table: https://github.com/pytorch/torchtitan,
// benchmarks/llama3_h100_202412_torchtitan.md, at 31a17bf. Llama 3.1 on hosts of 8 H100, joined by 400 Gb/s for each
// GPU. What kernels take is calibrated on the smallest line of each kind; the others follow from it.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "plan/classes.h"
#include "plan/ranks.h"
#include "plan/time/machine.h"
#include "plan/time/simulator.h"
#include "support/plan_builder.h"

namespace sluice::plan {
namespace {

// The table. Tokens a second on each GPU.
constexpr struct {
  const char* technique;
  double on_8, on_128;
} kFullySharded[] = {
    // tables 1 and 3: 8B, of a batch of 2 sequences of 8,192 tokens on each GPU
    {"FSDP", 5762, 5605},
    {"FSDP + torch.compile", 6667, 6514},
    {"FSDP + torch.compile + Float8", 8532, 8380},
};
constexpr double kOneForwardOneBackward = 100, kInterleaved = 128;  // table 5: 405B, 8 stages
constexpr double kTokens = 2 * 8192;

// ---- The state of a model in parts on all ranks (FSDP)

constexpr double kNvlink = 450e9, kNetwork = 50e9;  // bytes a second, one way
constexpr int kLayers = 32;

struct Block {
  int64_t parameters;
  double flops;  // forward, of a token
};
// The table of embeddings, 32 layers, and the head.
std::vector<Block> blocks_of_8b() {
  constexpr int64_t kHidden = 4096, kVocabulary = 128256, kFeedForward = 14336, kKeys = 1024;
  constexpr int64_t kLayer = 2 * kHidden * kHidden + 2 * kHidden * kKeys + 3 * kHidden * kFeedForward;
  std::vector<Block> blocks = {{kVocabulary * kHidden, 0}};
  for (int i = 0; i < kLayers; ++i) blocks.push_back({kLayer, 2.0 * kLayer + 2.0 * 8192 * kHidden});
  blocks.push_back({kVocabulary * kHidden, 2.0 * kVocabulary * kHidden});
  return blocks;
}

// A step of one of `ranks` alike: parameters are gathered two blocks ahead, in 16 bits, for the forward and again for
// the backward pass; gradients are scattered, in 32 bits, while the pass goes on.
Plan sharded_step(int ranks, double flops_per_s) {
  PlanBuilder b("sharded");
  const int host = b.stream("cpu:0", StreamKind::kHost), compute = b.stream("cpu:0");
  const int gathers = b.stream("cpu:0", StreamKind::kCollective),
            scatters = b.stream("cpu:0", StreamKind::kCollective, 1);
  const int source = b.source("step", host), sink = b.sink("end", host), update = b.actor("update", compute);
  const std::vector<Block> blocks = blocks_of_8b();
  const int n = static_cast<int>(blocks.size());
  std::vector<int> gather, work, scatter;  // forward, then backward
  for (int i = 0; i < 2 * n; ++i) {
    const Block& block = blocks[static_cast<size_t>(i < n ? i : 2 * n - 1 - i)];
    const std::string name = std::to_string(i);
    const int64_t part = (block.parameters + ranks - 1) / ranks;
    const auto bytes = static_cast<uint64_t>(part * ranks * 2);
    gather.push_back(b.actor("gather" + name, gathers));
    work.push_back(b.actor("work" + name, compute));
    const View whole{BaseKind::kRegister, b.reg("parameters" + name, gather.back(), {work.back()}, {.bytes = bytes}), 0,
                     0, TensorSpec::contiguous({DType::kBFloat16, {part * ranks}})};
    const View own{BaseKind::kVariable, b.variable("own" + name, {1}), 0, 0,
                   TensorSpec::contiguous({DType::kBFloat16, {part}})};
    b.plan.variables.back().spec = own.spec;
    const int k = b.run(gather.back(), "all_gather", {own}, {whole});
    b.plan.kernels[static_cast<size_t>(k)].collective = 0;
    const double passes = i < n ? 1 : 2.3;  // some of the forward pass is computed again
    b.run(work.back(), "work", {whole}, {}, passes * block.flops * kTokens / flops_per_s * 1e9);
    if (i < n) continue;
    const int gradient = b.reg("gradient" + name, work.back(), {}, {.bytes = 2 * bytes});
    scatter.push_back(b.actor("scatter" + name, scatters));
    b.edge(gradient, scatter.back());
    const int sum = b.reg("sum" + name, scatter.back(), {update}, {.bytes = static_cast<uint64_t>(part) * 4});
    b.run(work.back(), "give", {}, {b.of_reg(gradient, {part * ranks})});
    const int r = b.run(scatter.back(), "reduce_scatter", {b.of_reg(gradient, {part * ranks})}, {b.of_reg(sum, {part})},
                        0, {{"reduce", "average"}});
    b.plan.kernels[static_cast<size_t>(r)].collective = 1;
    b.run(update, "update", {b.of_reg(sum, {part})}, {});
  }
  const auto order = [&](int from, int to, int tokens = 0) {
    b.reg("order" + std::to_string(b.plan.registers.size()), from, {to}, {.initial_tokens = tokens});
  };
  order(source, gather[0]);
  order(update, gather[0], 1);
  for (size_t i = 0; i + 1 < gather.size(); ++i) {
    order(gather[i], gather[i + 1]);
    order(work[i], work[i + 1]);
    if (i + 2 < gather.size()) order(work[i], gather[i + 2]);
  }
  for (size_t i = 0; i + 1 < scatter.size(); ++i) order(scatter[i], scatter[i + 1]);
  order(update, sink);
  Classes classes;
  classes.ranks.emplace_back(static_cast<size_t>(ranks));
  std::iota(classes.ranks[0].begin(), classes.ranks[0].end(), 0);
  classes.groups = {{0, classes.ranks[0]}, {1, classes.ranks[0]}};
  Plan plan = b.build();
  set_classes(plan, classes);
  return plan;
}

double tokens_per_s(int ranks, double flops_per_s) {
  // A round of a ring takes as long as its slowest link, which leads from host to host where there are several.
  const Machine machine{{{"*", "*", ranks > 8 ? 10e3 : 5e3, ranks > 8 ? kNetwork : kNvlink}}};
  return kTokens / simulate(on_machine(sharded_step(ranks, flops_per_s), machine), {.steps = 4}).period_ns * 1e9;
}

// The floating-point operations of a second with which so many ranks make so many tokens.
double calibrated(int ranks, double tokens) {
  double rate = 300e12;
  for (int i = 0; i < 8; ++i) rate *= tokens / tokens_per_s(ranks, rate);
  return rate;
}

TEST(PublishedForecast, StateInPartsOn128FollowsFrom8) {
  ASSERT_EQ(verify(sharded_step(128, 400e12)).str(), "");
  for (const auto& line : kFullySharded) {
    const double rate = calibrated(8, line.on_8), forecast = tokens_per_s(128, rate);
    ASSERT_NEAR(tokens_per_s(8, rate) / line.on_8, 1, 1e-3) << line.technique;
    std::printf("%s: %.0f tokens/s on each of 8, %.0f on each of 128; published %.0f, deviation %+.1f %%\n",
                line.technique, line.on_8, forecast, line.on_128, 100 * (forecast / line.on_128 - 1));
    RecordProperty(std::string("deviation of ") + line.technique, std::to_string(forecast / line.on_128 - 1));
    EXPECT_NEAR(forecast / line.on_128, 1, 0.1) << line.technique;
    EXPECT_LT(forecast, line.on_8) << line.technique;
  }
}

// ---- A pipeline of 8 ranks, of which each has one or two stages

constexpr int kRanks = 8, kMicroBatches = 8;  // as many as ranks: the default there

// Stage s is on rank s % 8. A micro-batch goes down all stages and back; as many are under way as stages follow.
Plan pipeline_step(int chunks, double forward_ns) {
  PlanBuilder b("pipeline");
  constexpr uint64_t kActivation = 1 << 20;
  const int64_t elements = kActivation / 4;
  const int stages = kRanks * chunks;
  std::vector<int> host, compute, source, sink, forward, backward;
  for (int r = 0; r < kRanks; ++r) {
    const std::string n = std::to_string(r), on = (r > 0 ? n + "/" : "") + "cpu:0";
    host.push_back(b.stream(on, StreamKind::kHost));
    compute.push_back(b.stream(on));
    source.push_back(b.source("step" + n, host.back()));
    sink.push_back(b.sink("end" + n, host.back()));
  }
  for (int s = 0; s < stages; ++s) {
    forward.push_back(b.actor("forward" + std::to_string(s), compute[static_cast<size_t>(s % kRanks)]));
    backward.push_back(b.actor("backward" + std::to_string(s), compute[static_cast<size_t>(s % kRanks)]));
  }
  for (int s = 0; s < stages; ++s) {
    const auto at = static_cast<size_t>(s), rank = static_cast<size_t>(s % kRanks);
    const std::string n = std::to_string(s);
    const int update = b.actor("update" + n, compute[rank]);
    b.edge(b.reg("start" + n, source[rank], {}), forward[at], 1, kMicroBatches);
    b.edge(b.reg("weights" + n, update, {}, {.initial_tokens = 1}), forward[at], 1, kMicroBatches);
    const int saved = b.reg("saved" + n, forward[at], {backward[at]},
                            {.quota = std::min(kMicroBatches, stages - s), .bytes = kActivation});
    b.run(forward[at], "work", {}, {b.of_reg(saved, {elements})}, forward_ns / chunks);
    b.run(backward[at], "work", {b.of_reg(saved, {elements})}, {}, 3 * forward_ns / chunks);  // all is computed again
    const auto send = [&](const char* what, int from, int to) {
      const int reg = b.reg(what + n, from, {to}, {.quota = 2, .bytes = kActivation});
      b.run(from, "give", {}, {b.of_reg(reg, {elements})});
    };
    if (s + 1 < stages) send("activation", forward[at], forward[at + 1]);
    if (s > 0) send("gradient", backward[at], backward[at - 1]);
    b.reg("total" + n, backward[at], {update}, {.emit_every = kMicroBatches});
    b.reg("done" + n, update, {sink[rank]}, {.quota = 2});
  }
  return b.build();
}

double pipeline_ns(int chunks, double forward_ns) {
  const Machine machine{{{"*", "*", 10e3, kNetwork}}};
  return simulate(on_machine(side_by_side(pipeline_step(chunks, forward_ns)), machine), {.steps = 6, .in_flight = 1})
      .period_ns;
}

TEST(PublishedForecast, InterleavedStagesFollowFromOneForwardOneBackward) {
  ASSERT_EQ(verify(pipeline_step(2, 1e6)).str(), "");
  // A GPU's share of a batch of 32 x 8,192 tokens on 64: what all ranks of the pipeline take for it.
  const double published_ns = 32.0 * 8192 / 64 / kOneForwardOneBackward * 1e9;
  double forward_ns = 1e9;
  for (int i = 0; i < 4; ++i) forward_ns *= published_ns / pipeline_ns(1, forward_ns);
  const double forecast = kOneForwardOneBackward * pipeline_ns(1, forward_ns) / pipeline_ns(2, forward_ns);
  std::printf("405B on 512: 1F1B %.0f tokens/s on each, interleaved %.1f; published %.0f, deviation %+.1f %%\n",
              kOneForwardOneBackward, forecast, kInterleaved, 100 * (forecast / kInterleaved - 1));
  RecordProperty("deviation", std::to_string(forecast / kInterleaved - 1));
  EXPECT_NEAR(forecast / kInterleaved, 1, 0.1);
}

}  // namespace
}  // namespace sluice::plan
