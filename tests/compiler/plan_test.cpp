#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/fix.h"
#include "compiler/compiler.h"
#include "compiler/fake_target.h"
#include "compiler/nets.h"
#include "plan/json/json.h"
#include "plan/pack/ledger.h"
#include "support/error_of.h"

namespace sluice {
namespace {

CompileResult compile_fake(const graph::Graph& graph, const CompileOptions& options = {}) {
  return compile(graph, FakeTarget(), options);
}

graph::Graph parse_graph(const std::string& body) {
  return graph::parse("graph \"g\" {\n" + body + "}\n", "g.ir", builtin_ops());
}

int count_kernels(const plan::Plan& plan, const std::string& op) {
  return static_cast<int>(
      std::count_if(plan.kernels.begin(), plan.kernels.end(), [&](const auto& k) { return k.op == op; }));
}

// "stream: kernel kernel | ..." of the actors that run kernels, in the plan's order.
std::string programs(const plan::Plan& plan) {
  std::string text;
  for (const plan::Actor& a : plan.actors) {
    if (a.role != plan::ActorRole::kNormal) continue;
    text += plan.streams[a.stream].name + ":";
    for (const plan::Instr& i : a.program) {
      if (i.kind == plan::InstrKind::kRun) text += " " + plan.kernels[i.index].name;
    }
    text += "\n";
  }
  return text;
}

uint64_t arena_bytes(const CompileResult& result) { return plan::ledger(result.plan).arenas; }

TEST(Donation, APlanHasMemoryForOneOfInputAndOutput) {
  const graph::Graph graph = parse_graph(R"(
  %0 = input "params" : float32(1024,)
  %1 = input "grad" : float32(1024,)
  %2 = sub(%0, %1) : float32(1024,)
  output "new" = %2
)");
  CompileOptions options;
  const CompileResult kept = compile_fake(graph);
  options.donated = {"params"};
  const CompileResult donated = compile_fake(graph, options);
  EXPECT_EQ(arena_bytes(kept) - arena_bytes(donated), 2 * 4096u) << "two slots";
  const plan::Register* const result = find_register(donated.plan, "new");
  ASSERT_GE(result->in_place_of, 0);
  EXPECT_EQ(donated.plan.registers[donated.plan.edges[result->in_place_of].reg].name, "params");
  EXPECT_EQ(result->slots, find_register(donated.plan, "params")->slots);
  EXPECT_EQ(find_register(kept.plan, "new")->in_place_of, -1);
  EXPECT_EQ(donated.plan.options, (NamedAttrs{{"donated.params", true}}));
  options.donated = {"weights"};
  EXPECT_EQ(test::message_of([&] { compile_fake(graph, options); }),
            "donated: 'weights' is no input of 'plan'; its inputs are params, grad");
}

TEST(Programs, OneStreamIsOneActor) {
  const plan::Plan plan = compile_fake(mlp(true)).plan;
  ASSERT_EQ(plan.actors.size(), 3u);
  EXPECT_EQ(plan.actors[0].role, plan::ActorRole::kFeed);
  EXPECT_EQ(plan.actors[2].role, plan::ActorRole::kSink);
  EXPECT_EQ(plan.streams.size(), 1u);
}

TEST(Programs, AreCutOnlyWhereAPathLeavesAndReturns) {
  // b waits for nothing of compute; d needs c, which needs a: compute is cut before d and nowhere else.
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(8,)
  %1 = neg(%0) : float32(8,) [module "a"]
  %2 = exp(%0) : float32(8,) [stream "host", module "b"]
  %3 = add(%1, %2) : float32(8,) [module "e"]
  %4 = exp(%1) : float32(8,) [stream "host:1", module "c"]
  %5 = add(%4, %2) : float32(8,) [module "d"]
  output "y" = %5
  output "z" = %3
)"))
                              .plan;
  EXPECT_EQ(programs(plan),
            "cpu:0/compute0: a/neg e/add\ncpu:0/host0: b/exp\ncpu:0/host1: c/exp\ncpu:0/compute0: d/add\n");
}

TEST(Programs, CrossedDependenciesDoNotDeadlock) {
  // a1 -> b1 and b2 -> a2: each stream alone could be one actor, both together could not.
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(8,)
  %1 = neg(%0) : float32(8,) [module "a1"]
  %2 = exp(%0) : float32(8,) [stream "host", module "b2"]
  %3 = exp(%1) : float32(8,) [stream "host", module "b1"]
  %4 = neg(%2) : float32(8,) [module "a2"]
  output "y" = %3
  output "z" = %4
)"))
                              .plan;
  EXPECT_EQ(programs(plan), "cpu:0/compute0: a1/neg\ncpu:0/host0: b1/exp b2/exp\ncpu:0/compute0: a2/neg\n");
}

TEST(Programs, EmitRightAfterTheLastWriteAndReleaseAfterTheLastUse) {
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(8,)
  %1 = neg(%0) : float32(8,)
  %2 = exp(%1) : float32(8,)
  %3 = tanh(%2) : float32(8,)
  output "early" = %1
  output "late" = %3
)"))
                              .plan;
  using plan::InstrKind;
  const std::vector<plan::Instr>& p = plan.actors[1].program;
  const std::vector<InstrKind> kinds{InstrKind::kRun, InstrKind::kEmit, InstrKind::kRelease,
                                     InstrKind::kRun, InstrKind::kRun,  InstrKind::kEmit};
  ASSERT_EQ(p.size(), kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(p[i].kind, kinds[i]) << i;
  EXPECT_EQ(plan.registers[p[1].index].name, "early");
}

TEST(Placement, InsertsCopiesRecursively) {
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(8,)
  %1 = exp(%0) : float32(8,) [device "sim:0"]
  %2 = exp(%1) : float32(8,) [device "sim:1"]
  %3 = exp(%2) : float32(8,)
  output "y" = %3
)"))
                              .plan;
  EXPECT_EQ(programs(plan),
            "sim:0/copy_in0: x/copy\nsim:0/compute0: exp\nsim:0/copy_out0: exp/copy\nsim:1/copy_in0: exp/copy/copy\n"
            "sim:1/compute0: exp#2\nsim:1/copy_out0: exp#2/copy\ncpu:0/compute0: exp#3\n");
  std::set<std::string> spaces;
  for (const plan::Space& s : plan.spaces) spaces.insert(s.str());
  EXPECT_EQ(spaces, (std::set<std::string>{"host", "sim:0", "sim:1"}));
}

// Memory that a GPU copies is pinned; a value that it cannot copy as it lies is packed first, on its own side.
TEST(Placement, DevicesThatCopyByThemselvesGetPinnedDenseMemory) {
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(4, 8)
  %1 = slice(%0) {starts = [0, 0], stops = [4, 8], steps = [1, 2]} : float32(4, 4)
  %2 = exp(%1) : float32(4, 4) [device "cuda:0"]
  %3 = slice(%2) {starts = [0, 0], stops = [4, 4], steps = [1, 2]} : float32(4, 2)
  %4 = exp(%3) : float32(4, 2)
  output "y" = %4
)"))
                              .plan;
  EXPECT_EQ(programs(plan),
            "cpu:0/compute0: x/copy\ncuda:0/copy_in0: x/copy/copy\ncuda:0/compute0: exp exp/copy\n"
            "cuda:0/copy_out0: exp/copy/copy\ncpu:0/compute0: exp#2\n");
  int copies = 0;
  for (const plan::Actor& actor : plan.actors) {
    const plan::StreamKind kind = plan.streams[actor.stream].kind;
    if (kind != plan::StreamKind::kCopyIn && kind != plan::StreamKind::kCopyOut) continue;
    for (const plan::Instr& instr : actor.program) {
      if (instr.kind != plan::InstrKind::kRun) continue;
      const plan::Kernel& copy = plan.kernels[instr.index];
      EXPECT_TRUE(is_dense(copy.inputs[0].spec.shape, copy.inputs[0].spec.strides)) << copy.name;
      const plan::View& on_host = (kind == plan::StreamKind::kCopyIn ? copy.inputs : copy.outputs)[0];
      const plan::Register& host = plan.registers[on_host.index];
      EXPECT_EQ(plan.spaces[plan.arenas[plan.buffers[host.slots[0]].arena].space],
                (plan::Space{plan::SpaceKind::kPinned, parse_device("cuda:0")}))
          << host.name;
      ++copies;
    }
  }
  EXPECT_EQ(copies, 2);
}

// Copied once, whoever reads it, and however much of it: what is less than all of it is copied by itself.
TEST(Placement, SeveralViewsOfAValueCostOneCopy) {
  const auto copies = [](const std::string& views, const std::string& type) {
    std::string body =
        "  %0 = input \"x\" : float32(4, 6)\n  %1 = exp(%0) : float32(4, 6) [device \"sim:0\"]\n" + views;
    for (int i = 0; i < 2; ++i) {
      body += fmt::format("  %{} = exp(%{}) : float32{} [device \"sim:1\"]\n", 4 + i, 2 + i, type);
      body += fmt::format("  output \"y{}\" = %{}\n", i, 4 + i);
    }
    const plan::Plan plan = compile_fake(parse_graph(body)).plan;
    std::vector<std::string> in;
    for (const plan::Actor& actor : plan.actors) {
      for (const plan::Instr& i : actor.program)
        if (i.kind == plan::InstrKind::kRun && plan.streams[actor.stream].name == "sim:1/copy_in0")
          in.push_back(
              fmt::format("{}{}", plan.kernels[i.index].name, plan.kernels[i.index].inputs[0].spec.shape.str()));
    }
    return in;
  };
  const std::vector<std::string> once = {"exp/copy/copy(4, 6)"};
  EXPECT_EQ(copies("  %2 = permute(%1) {dims = [1, 0]} : float32(6, 4)\n"
                   "  %3 = reshape(%1) {shape = [6, 4]} : float32(6, 4)\n",
                   "(6, 4)"),
            once);
  EXPECT_EQ(copies("  %2 = slice(%1) {starts = [0, 0], stops = [2, 6], steps = [1, 1]} : float32(2, 6)\n"
                   "  %3 = slice(%1) {starts = [2, 0], stops = [4, 6], steps = [1, 1]} : float32(2, 6)\n",
                   "(2, 6)"),
            once);
  EXPECT_EQ(copies("  %2 = slice(%1) {starts = [0, 0], stops = [1, 6], steps = [1, 1]} : float32(1, 6)\n"
                   "  %3 = slice(%1) {starts = [2, 0], stops = [3, 6], steps = [1, 1]} : float32(1, 6)\n",
                   "(1, 6)"),
            (std::vector<std::string>{"exp/copy/copy(1, 6)", "exp/copy#2/copy(1, 6)"}));
}

// Nor does what lies in several orders at once.
TEST(Layout, ViewsOfAReorderedValueCostNoKernel) {
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(2, 8, 4, 4)
  %1 = variable "w" : float32(8, 8, 1, 1)
  %2 = conv(%0, %1) {stride = [1, 1], padding = [0, 0], dilation = [1, 1], groups = 1} : float32(2, 8, 4, 4)
  %3 = slice(%2) {starts = [0, 0, 0, 0], stops = [1, 8, 4, 4], steps = [1, 1, 1, 1]} : float32(1, 8, 4, 4)
  %4 = softmax(%2) {dim = 1} : float32(2, 8, 4, 4)
  %5 = softmax(%3) {dim = 1} : float32(1, 8, 4, 4)
  output "y" = %4
  output "z" = %5
)"))
                              .plan;
  EXPECT_EQ(programs(plan), "cpu:0/compute0: x/copy conv conv/copy softmax softmax#2\n");
}

TEST(Placement, VariablesLiveWhereTheyAreUsed) {
  CompileOptions options;
  options.device = parse_device("sim:0");
  const plan::Plan plan = compile_fake(mlp(true), options).plan;
  for (const plan::Variable& v : plan.variables) EXPECT_EQ(plan.spaces[v.space].str(), "sim:0") << v.name;
  EXPECT_EQ(count_kernels(plan, "copy"), 3);  // x and t in, the loss out
}

TEST(Placement, PreparationOnAHostStreamTakesTheFeedAlong) {
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(8,)
  %1 = input "t" : float32(8,)
  %2 = exp(%0) : float32(8,) [stream "host", quota 2]
  %3 = add(%2, %1) : float32(8,)
  output "y" = %3
)"))
                              .plan;
  EXPECT_EQ(plan.streams[plan.actors[0].stream].name, "cpu:0/host0");
  EXPECT_EQ(find_register(plan, "exp")->quota, 2);
  const auto compute =
      std::find_if(plan.streams.begin(), plan.streams.end(), [](auto& s) { return s.name == "cpu:0/compute0"; });
  EXPECT_EQ(compute->cores, 3);  // of 4, one for the host stream
}

TEST(Placement, ComputeStreamsShareTheCores) {
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(8,)
  %1 = exp(%0) : float32(8,) [stream "compute:1"]
  %2 = relu(%0) : float32(8,) [stream "compute:2"]
  output "y" = %1
  output "z" = %2
)"))
                              .plan;
  int computing = 0;
  for (const plan::Actor& actor : plan.actors) {
    const plan::Stream& stream = plan.streams[actor.stream];
    if (stream.index == 0) continue;
    ++computing;
    EXPECT_EQ(stream.cores, 2) << stream.name;  // of 4; nothing computes on compute0
  }
  EXPECT_EQ(computing, 2);
}

// The cores of compute streams whose work is as given, in elements, beside a host stream's.
std::vector<int> shared_cores(const std::vector<int64_t>& work, int64_t host) {
  class ByElements : public FakeTarget {
    double cost_ns(const plan::KernelQuery& q) const override { return static_cast<double>(numel(q.outputs[0].shape)); }
  };
  std::string body;
  int values = 0;
  const auto add = [&](const std::string& stream, int64_t elements) {
    body +=
        fmt::format("  %{0} = input \"x{0}\" : float32({2},)\n  %{1} = exp(%{0}) : float32({2},) [stream \"{3}\"]\n",
                    values, values + 1, elements, stream);
    body += fmt::format("  output \"y{0}\" = %{0}\n", values + 1);
    values += 2;
  };
  for (size_t i = 0; i < work.size(); ++i) add(fmt::format("compute:{}", i + 1), work[i]);
  if (host > 0) add("host", host);
  const plan::Plan plan = compile(parse_graph(body), ByElements(), {}).plan;
  std::vector<int> cores(work.size());
  for (const plan::Stream& stream : plan.streams)
    if (stream.kind == plan::StreamKind::kCompute && stream.index > 0)
      cores[static_cast<size_t>(stream.index) - 1] = stream.cores;
  return cores;
}

TEST(Placement, CoresFollowTheWorkOfStreams) {
  using Cores = std::vector<int>;
  EXPECT_EQ(shared_cores({400, 400}, 0), Cores({2, 2}));  // of 4
  EXPECT_EQ(shared_cores({900, 300}, 0), Cores({3, 1}));
  EXPECT_EQ(shared_cores({400, 400, 400}, 0), Cores({4, 4, 4}));  // in turns: one would have two
  EXPECT_EQ(shared_cores({2000, 100}, 0), Cores({4, 4}));
  EXPECT_EQ(shared_cores({900}, 300), Cores({3}));
  EXPECT_EQ(shared_cores({4000}, 1), Cores({4}));  // the host stream is done at once
  EXPECT_EQ(shared_cores({100, 100, 100, 100, 100}, 0), Cores({1, 1, 1, 1, 1}));
}

TEST(Placement, MistakesNameTheLine) {
  const auto error = [](const std::string& annotation) {
    return test::message_of([&] {
      compile_fake(parse_graph("  %0 = input \"x\" : float32(8,)\n  %1 = exp(%0) : float32(8,) [" + annotation +
                               ", source \"net.py:12\"]\n  output \"y\" = %1\n"));
    });
  };
  EXPECT_EQ(error("device \"cuda:3\""),
            "op exp: device cuda:3: not there; the target has cpu:0, sim:0, sim:1, cuda:0  (net.py:12)");
  EXPECT_EQ(
      error("stream \"fast\""),
      "op exp: unknown stream: \"fast\"; must be \"compute\", \"compute:N\", \"host\" or \"host:N\"  (net.py:12)");
  FakeTarget target;
  target.missing_on_sim = {"exp"};
  EXPECT_EQ(
      test::message_of([&] {
        compile(parse_graph("  %0 = input \"x\" : float32(8,)\n  %1 = exp(%0) : float32(8,) [device \"sim:0\", source "
                            "\"net.py:12\"]\n  output \"y\" = %1\n"),
                target, {});
      }),
      "op exp: no kernel on device sim:0; place it on a device that has one  (net.py:12)");
}

TEST(Layout, ConvolutionsStayChannelsLast) {
  const plan::Plan plan = compile_fake(conv_net(30)).plan;
  int last = 0;
  for (const plan::Kernel& k : plan.kernels) {
    if (k.outputs[0].spec.shape.rank() != 4 || k.op == "copy") continue;
    EXPECT_EQ(k.outputs[0].spec.strides, channels_last_strides(k.outputs[0].spec.shape)) << k.name;
    ++last;
  }
  EXPECT_GT(last, 10);
  EXPECT_EQ(count_kernels(plan, "copy"), 2);  // the input, and the flattened end
}

// A graph with outputs that may lie in any order: how many copies it takes, and the outputs' axes and shapes.
using Ordered = std::pair<int, std::vector<std::string>>;
Ordered in_any_order(const std::vector<std::string>& any_order, const std::string& more = "") {
  CompileOptions options;
  options.any_order = any_order;
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(2, 8, 5, 4)
  %1 = variable "w" : float32(8, 8, 1, 1)
  %2 = conv(%0, %1) {stride = [1, 1], padding = [0, 0], dilation = [1, 1], groups = 1} : float32(2, 8, 5, 4)
  %3 = softmax(%0) {dim = 1} : float32(2, 8, 5, 4)
)" + more + R"(  output "y" = %2
  output "z" = %3
)"),
                                       options)
                              .plan;
  std::vector<std::string> outputs;
  for (const plan::Output& output : plan.outputs) {
    const TensorSpec& spec = output.view.spec;
    EXPECT_TRUE(is_contiguous(spec.shape, spec.strides)) << output.name;
    outputs.push_back(fmt::format("{}: ({}) {}", output.name, fmt::join(output.axes, ", "), spec.shape.str()));
  }
  return {count_kernels(plan, "copy"), outputs};
}

TEST(Layout, OutputsInAnyOrderAreNotCopied) {
  const std::string ordered = "y: () (2, 8, 5, 4)", lying = "y: (0, 2, 3, 1) (2, 5, 4, 8)", z = "z: () (2, 8, 5, 4)";
  EXPECT_EQ(in_any_order({}), Ordered(2, {ordered, z}));
  EXPECT_EQ(in_any_order({"y", "z"}), Ordered(1, {lying, z}));
  // Another reader may want it in order.
  EXPECT_EQ(in_any_order({"y"}, "  %4 = softmax(%2) {dim = 1} : float32(2, 8, 5, 4)\n  output \"s\" = %4\n"),
            Ordered(2, {"s: () (2, 8, 5, 4)", lying, z}));
  EXPECT_EQ(test::message_of([] { in_any_order({"w"}); }),
            "any_order: 'w' is no output of 'plan'; its outputs are y, z");
}

TEST(Layout, ViewsCostNoKernel) {
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(2, 3, 4)
  %1 = permute(%0) {dims = [2, 0, 1]} : float32(4, 2, 3)
  %2 = slice(%1) {starts = [1, 0, 0], stops = [3, 2, 3], steps = [1, 1, 2]} : float32(2, 2, 2)
  %3 = exp(%2) : float32(2, 2, 2)
  output "y" = %3
)"))
                              .plan;
  ASSERT_EQ(plan.kernels.size(), 1u);
  EXPECT_EQ(plan.kernels[0].inputs[0].offset, 4u);
  EXPECT_EQ(plan.kernels[0].inputs[0].spec.strides, Strides({1, 12, 8}));
}

TEST(Quota, InputsAndOutputsFollowTheBufferSize) {
  CompileOptions options;
  std::vector<uint64_t> bytes;
  for (int n : {1, 2, 3}) {
    options.outputs_buffer_size = n;
    const CompileResult result = compile_fake(mlp(true), options);
    for (const char* name : {"x", "t", "loss"}) EXPECT_EQ(find_register(result.plan, name)->quota, n) << name;
    bytes.push_back(arena_bytes(result));
  }
  const uint64_t slot = 32 * 64 * 4 + 256 + 64;  // x, t and loss, each a multiple of the alignment
  EXPECT_EQ(bytes[1] - bytes[0], slot);
  EXPECT_EQ(bytes[2] - bytes[1], slot);
}

TEST(Quota, BalancedStagesGetTwoSlotsWithoutBeingTold) {
  const graph::Graph graph = parse_graph(R"(
  %0 = input "x" : float32(800,)
  %1 = exp(%0) : float32(800,) [stream "host"]
  %2 = neg(%1) : float32(800,)
  output "y" = %2
)");
  CompileOptions options;
  EXPECT_EQ(find_register(compile_fake(graph, options).plan, "exp")->quota, 2);
  options.fast_quotas = false;
  const CompileResult least = compile_fake(graph, options);
  EXPECT_EQ(find_register(least.plan, "exp")->quota, 1);
  // Within a budget: all of it, or what is left.
  options.fast_quotas = true;
  options.memory_budget = plan::ledger(least.plan).total;
  EXPECT_EQ(find_register(compile_fake(graph, options).plan, "exp")->quota, 1);
  options.memory_budget += 800 * 4;
  EXPECT_EQ(find_register(compile_fake(graph, options).plan, "exp")->quota, 2);
}

TEST(Quota, NamesWinAndMustExist) {
  const graph::Graph graph = parse_graph(R"(
  %0 = input "x" : float32(8,)
  %1 = exp(%0) : float32(8,) [stream "host", quota 2]
  %2 = neg(%1) : float32(8,)
  output "y" = %2
)");
  CompileOptions options;
  options.quotas = {{"exp", 5}, {"x", 3}};
  const plan::Plan plan = compile_fake(graph, options).plan;
  EXPECT_EQ(find_register(plan, "exp")->quota, 5);
  EXPECT_EQ(find_register(plan, "x")->quota, 3);
  options.quotas = {{"nothing", 5}};
  EXPECT_EQ(test::message_of([&] { compile_fake(graph, options); }),
            "quota of register 'nothing': there is no such register; the plan has x, exp, y");
  options.quotas = {{"exp", 0}};
  EXPECT_EQ(test::message_of([&] { compile_fake(graph, options); }),
            "quota of register 'exp': 0; must be from 1 to 65536");
}

TEST(Memory, SwitchesGrowIt) {
  const CompileResult plain = compile_fake(mlp(true));
  CompileOptions no_reuse, no_in_place;
  no_reuse.reuse_memory = false;
  no_in_place.in_place = false;
  EXPECT_GT(arena_bytes(compile_fake(mlp(true), no_reuse)), arena_bytes(plain));
  EXPECT_GT(arena_bytes(compile_fake(mlp(true), no_in_place)), arena_bytes(plain));
  for (const plan::Arena& arena : plain.plan.arenas) EXPECT_LE(arena.lower_bound, arena.bytes);
}

TEST(Memory, OpGranularityCostsFewBytes) {
  for (const graph::Graph& graph : {mlp(true), conv_net(60, true), transformer(120, true)}) {
    CompileOptions options;
    const uint64_t programs = arena_bytes(compile_fake(graph, options));
    options.granularity = Granularity::kOp;
    const CompileResult op = compile_fake(graph, options);
    EXPECT_LE(static_cast<double>(arena_bytes(op)), 1.10 * static_cast<double>(programs)) << graph.name;
    EXPECT_EQ(op.plan.actors.size(), op.plan.kernels.size() + 2);
  }
}

TEST(Memory, UpdatesWriteTheirVariables) {
  const plan::Plan plan = compile_fake(mlp(true)).plan;
  for (const plan::Kernel& k : plan.kernels) {
    if (!k.op.ends_with("_update")) continue;
    EXPECT_EQ(k.outputs[0].base, plan::BaseKind::kVariable);
    EXPECT_EQ(k.outputs[0].index, k.inputs[0].index);
  }
  EXPECT_EQ(count_kernels(plan, "copy"), 0);
}

TEST(Memory, BudgetIsHeldOrRefused) {
  const uint64_t total = plan::ledger(compile_fake(mlp(true)).plan).total;
  CompileOptions options;
  options.memory_budget = total;
  EXPECT_NO_THROW(compile_fake(mlp(true), options));
  options.memory_budget = total - 1;
  const std::string error = test::message_of([&] { compile_fake(mlp(true), options); });
  EXPECT_NE(
      error.find(fmt::format("the smallest budget that works is {} bytes; largest registers: 'x' (2 slots", total)),
      std::string::npos)
      << error;
}

TEST(Pruning, DeadWeightGradientsLeaveNoKernel) {
  NetBuilder net("input_gradient");
  Value x = net.input("x", {4, 8});
  x.impl()->autograd = std::make_unique<AutogradMeta>();
  x.impl()->autograd->requires_grad = true;
  const Value y = ops::sum(ops::relu(ops::linear(x, net.parameter("w", {8, 8}))));
  std::vector<Value> roots{y}, inputs{x, net.parameters[0]}, none;
  const std::vector<Value> grads = grad(roots, inputs, none);
  net.output("dx", grads[0]);  // the weight's gradient is computed and never read
  const plan::Plan plan = compile_fake(net.graph).plan;
  for (const plan::Kernel& k : plan.kernels) {
    if (k.op == "matmul") {
      EXPECT_FALSE(get_attr<bool>(k.attrs, "transpose_a")) << k.name;
    }
  }
  EXPECT_EQ(count_kernels(plan, "matmul"), 1);
}

TEST(Pruning, UnusedBranchLeavesNoKernel) {
  const plan::Plan plan = compile_fake(parse_graph(R"(
  %0 = input "x" : float32(8,)
  %1 = exp(%0) : float32(8,)
  %2 = tanh(%1) : float32(8,)
  output "y" = %1
)"))
                              .plan;
  EXPECT_EQ(count_kernels(plan, "tanh"), 0);
  EXPECT_EQ(plan.kernels.size(), 1u);
}

TEST(Plan, IsByteIdentical) {
  for (const Granularity granularity : {Granularity::kProgram, Granularity::kOp}) {
    CompileOptions options;
    options.granularity = granularity;
    EXPECT_EQ(plan::to_json(compile_fake(transformer(100, true), options).plan),
              plan::to_json(compile_fake(transformer(100, true), options).plan));
  }
}

// Says of every kernel how to do without it.
class RefusingTarget : public FakeTarget {
 public:
  plan::LayoutPreference layouts(const plan::KernelQuery& query) const override {
    throw FixableError(ErrorKind::kUnsupported, "op " + query.op + ": not today", {{"call", query.op}});
  }
};

TEST(Plan, ErrorsOfATargetKeepTheirFixBesideTheLine) {
  const graph::Graph graph = parse_graph(R"(
  %0 = input "x" : float32(2)
  %1 = exp(%0) : float32(2) [source "net.py:4"]
  output "y" = %1
)");
  try {
    compile(graph, RefusingTarget(), {});
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "op exp: not today  (net.py:4)");
    EXPECT_EQ(fix_str(fix_of(error)), "call exp");
  }
}

TEST(Plan, KernelsCarryModuleSourceAndCost) {
  const plan::Plan plan = compile_fake(mlp(false)).plan;
  EXPECT_EQ(plan.kernels[0].name, "fc1/linear");
  EXPECT_EQ(plan.kernels[0].module, "fc1");
  EXPECT_EQ(plan.kernels[0].source.str(), "net.py:1");
  EXPECT_GT(plan.kernels[0].cost_ns, 0);
  EXPECT_EQ(plan.target, "fake");
}

TEST(Options, MistakesAreErrors) {
  CompileOptions options;
  options.disabled_passes = {"dead_cod"};
  EXPECT_EQ(test::message_of([&] { compile_fake(mlp(false), options); }),
            "disabled_passes: unknown pass: 'dead_cod'; the passes are dead_code, simplify, common_subexpressions, "
            "patterns, partition, assign_devices, choose_regions, recompute, offload, fuse_bias, fold_norms, "
            "fuse_activation, "
            "fuse_pad, "
            "fuse_convolution, fuse_batch_norm, fuse_quantized, fuse_add, loops, decompose, pad_products, "
            "fold_constants, fuse_rows, fuse_elementwise, fuse_updates");
  options = {};
  options.outputs_buffer_size = 0;
  EXPECT_EQ(test::message_of([&] { compile_fake(mlp(false), options); }), "outputs_buffer_size: 0; must be at least 1");
  options = {};
  options.float32_matmul_precision = "fast";
  EXPECT_EQ(test::message_of([&] { compile_fake(mlp(false), options); }),
            "float32_matmul_precision: \"fast\"; must be highest, high or medium");
  options = {};
  options.activations = "none";
  EXPECT_EQ(test::message_of([&] { compile_fake(mlp(false), options); }),
            "activations: \"none\"; must be exact or all");
  options = {};
  options.updates = "many";
  EXPECT_EQ(test::message_of([&] { compile_fake(mlp(false), options); }), "updates: \"many\"; must be single or all");
  options = {};
  options.order = "fast";
  EXPECT_EQ(test::message_of([&] { compile_fake(mlp(false), options); }),
            "order: \"fast\"; must be memory, program, speed, overlap or short_last");
  options = {};
  options.device = parse_device("cuda:1");
  EXPECT_EQ(test::message_of([&] { compile_fake(mlp(false), options); }),
            "device cuda:1: not there; the target has cpu:0, sim:0, sim:1, cuda:0");
}

TEST(Options, DumpWritesEveryPassAndATimeTable) {
  const std::string dir = testing::TempDir() + "/sluice_dump_" + std::to_string(getpid());
  std::filesystem::remove_all(dir);
  CompileOptions options;
  options.name = "net";
  options.dump_dir = dir;
  options.disabled_passes = {"simplify"};
  const CompileResult result = compile_fake(mlp(false), options);
  EXPECT_TRUE(std::filesystem::exists(dir + "/net.01.dead_code.before.ir"));
  EXPECT_TRUE(std::filesystem::exists(dir + "/net.01.dead_code.after.ir"));
  EXPECT_FALSE(std::filesystem::exists(dir + "/net.02.simplify.before.ir"));
  std::stringstream table;
  table << std::ifstream(dir + "/net.times.txt").rdbuf();
  double sum = 0, total = 0;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::vector<std::string> w{std::istream_iterator<std::string>(words), {}};
    if (w.empty() || w[0] == "stage") continue;
    (w[0] == "total" ? total : sum) += std::stod(w.back());
  }
  EXPECT_GT(total, 0);
  EXPECT_NEAR(sum, total, 1e-4);
  std::filesystem::remove_all(dir);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kMostSeconds = 50;
#else
constexpr double kMostSeconds = 5;
#endif

// Generous: the aim is 5 s for 10,000 ops and a factor of 5 for four times the ops.
TEST(CompileTime, IsNearLinear) {
  const auto seconds = [](const graph::Graph& graph, const CompileOptions& options) {  // of this process's own time
    const std::clock_t begin = std::clock();
    compile_fake(graph, options);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  const graph::Graph small = conv_net(2500, true), large = conv_net(10000, true);
  for (const Granularity granularity : {Granularity::kProgram, Granularity::kOp}) {
    CompileOptions options;
    options.granularity = granularity;
    // The best of several rounds, in turn: what else runs takes the caches from one side or the other. Work that grew
    // with the square would take 16 times as long in each.
    double best_small = 1e9, best_large = 1e9;
    for (int round = 0; round < 3 || (round < 12 && best_large >= 10 * best_small); ++round) {
      best_small = std::min(best_small, seconds(small, options));
      best_large = std::min(best_large, seconds(large, options));
    }
    EXPECT_LT(best_large, kMostSeconds);
    EXPECT_LT(best_large / best_small, 10.0) << best_small << " s and " << best_large << " s";
  }
}

}  // namespace
}  // namespace sluice
