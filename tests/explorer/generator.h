#pragma once
// Small plans of every kind: all combinations for a few shapes of two to four actors, random ones up to six.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "support/plan_builder.h"

namespace sluice::explorer {

using plan::InstrKind;
using plan::Plan;
using plan::PlanBuilder;

// How programs order what they may do in any order.
enum class ProgramOrder { kEmitFirst, kReleaseFirst, kRandom };

// Writes legal programs for all actors: one kernel reads all inputs and writes all outputs, then emits and releases
// in the given order, with a second kernel that reads what has not been released yet, where there is something.
inline void write_programs(PlanBuilder& b, ProgramOrder order, std::mt19937_64& random) {
  const plan::Adjacency adjacency(b.plan);
  const auto data = [&](int reg) { return b.plan.registers[reg].bytes > 0; };
  const auto overwritten = [&](int a, int edge) {
    return std::any_of(adjacency.out_registers[a].begin(), adjacency.out_registers[a].end(),
                       [&](int r) { return b.plan.registers[r].in_place_of == edge; });
  };
  for (int a = 0; a < static_cast<int>(b.plan.actors.size()); ++a) {
    const plan::ActorRole role = b.plan.actors[a].role;
    std::vector<plan::View> reads, writes, reads_again;
    std::vector<int> edges_again;
    for (const int e : adjacency.in_edges[a]) {
      const plan::Edge& edge = b.plan.edges[e];
      if (!data(edge.reg)) continue;
      for (int t = 0; t < edge.take; ++t) reads.push_back(b.of_reg(edge.reg, {16}, t));
      if (overwritten(a, e)) continue;
      reads_again.push_back(b.of_reg(edge.reg, {16}));
      edges_again.push_back(e);
    }
    for (const int r : adjacency.out_registers[a]) {
      if (data(r)) writes.push_back(b.of_reg(r, {16}));
    }
    const bool computes = role == plan::ActorRole::kSink ? !writes.empty() : role != plan::ActorRole::kFeed;
    if (computes) b.run(a, "make", reads, writes);
    std::vector<plan::Instr> rest;
    const auto emits = [&] {
      for (const int r : adjacency.out_registers[a]) rest.push_back({InstrKind::kEmit, r});
    };
    const auto releases = [&] {
      for (const int e : adjacency.in_edges[a]) rest.push_back({InstrKind::kRelease, e});
    };
    if (order == ProgramOrder::kReleaseFirst) releases();
    emits();
    if (order != ProgramOrder::kReleaseFirst) releases();
    if (order == ProgramOrder::kRandom) std::shuffle(rest.begin(), rest.end(), random);
    // The second kernel stands before the first release of what it reads.
    size_t at = rest.size();
    for (size_t i = 0; i < rest.size() && at == rest.size(); ++i) {
      if (rest[i].kind == InstrKind::kRelease &&
          std::find(edges_again.begin(), edges_again.end(), rest[i].index) != edges_again.end())
        at = i;
    }
    for (size_t i = 0; i <= rest.size(); ++i) {
      if (i == at && i > 0 && !reads_again.empty() && role == plan::ActorRole::kNormal) b.run(a, "look", reads_again);
      if (i < rest.size()) b.plan.actors[a].program.push_back(rest[i]);
    }
  }
}

// Gives every register its slots; a certificate when there is one.
inline Plan finished(PlanBuilder& b) {
  const auto depth = [&](size_t r) {
    int n = 0;
    for (int at = static_cast<int>(r); b.plan.registers[at].in_place_of >= 0; ++n)
      at = b.plan.edges[b.plan.registers[at].in_place_of].reg;
    return n;
  };
  // A register in place takes the slots of the other, which must have them by then.
  int deepest = 0;
  for (size_t r = 0; r < b.plan.registers.size(); ++r) deepest = std::max(deepest, depth(r));
  for (int level = 0; level <= deepest; ++level) {
    for (size_t r = 0; r < b.plan.registers.size(); ++r) {
      plan::Register& reg = b.plan.registers[r];
      if (reg.bytes == 0 || depth(r) != level) continue;
      if (reg.in_place_of >= 0) {
        reg.slots = b.plan.registers[b.plan.edges[reg.in_place_of].reg].slots;
        continue;
      }
      for (int i = 0; i < reg.quota; ++i) reg.slots.push_back(b.buffer(reg.name + "." + std::to_string(i), reg.bytes));
    }
  }
  return b.build(false);
}

struct Rates {
  int emit_every = 1, take = 1, hold = 1;
};
inline constexpr Rates kRates[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 1, 2}};

// Number `index` of all plans of these shapes. The smallest vary fastest, so that a stride sees all kinds.
//   0 feed -> sink              1 feed -> a -> sink              2 the same, a -> a feeds back
//   3 the same, sink -> feed    4 feed -> {a, sink}, a -> sink   5 feed -> a -> b -> sink, b -> a feeds back
//   6 two sources -> sink
class Systematic {
 public:
  static constexpr int kShapes = 7;
  static int64_t count() { return int64_t{kShapes} * 3 * 3 * 5 * 5 * 2 * 2 * 3 * 2 * 2; }

  static Plan plan(int64_t index) {
    const auto digit = [&index](int base) {
      const int d = static_cast<int>(index % base);
      index /= base;
      return d;
    };
    const int shape = digit(kShapes);
    const int quota_x = 1 + digit(3), quota_y = 1 + digit(3);
    const Rates x = kRates[digit(5)], y = kRates[digit(5)];
    const bool in_place = digit(2) == 1;
    const ProgramOrder order = digit(2) == 1 ? ProgramOrder::kReleaseFirst : ProgramOrder::kEmitFirst;
    const int initial = digit(3), quota_back = std::max(1 + digit(2), initial);
    const bool control = digit(2) == 1;
    PlanBuilder b("systematic");
    const int one = b.stream("cpu:0", plan::StreamKind::kHost), two = b.stream();
    const int feed = shape == 6 ? b.source("feed", one) : b.feed("feed", one);
    std::vector<int> chain{feed};
    if (shape != 0 && shape != 6) chain.push_back(b.actor("a", two));
    if (shape == 5) chain.push_back(b.actor("b", one));
    chain.push_back(b.sink("sink", one));
    const auto reg = [&](const std::string& name, int from, int to, int quota, Rates r, int in_place_of = -1) {
      const int made = b.reg(name, from, {},
                             {.quota = std::max(quota, r.take),
                              .bytes = control ? 0u : 64u,
                              .emit_every = r.emit_every,
                              .in_place_of = in_place_of});
      b.edge(made, to, r.take, r.hold);
      return made;
    };
    const int rx = reg("x", chain[0], chain[1], quota_x, x);
    const bool fits = in_place && chain.size() > 2 && shape != 4 && x.take == 1 && x.hold == y.emit_every &&
                      std::max(quota_y, y.take) == b.plan.registers[rx].quota;
    if (chain.size() > 2) reg("y", chain[1], chain[2], quota_y, y, fits ? b.edge_of(rx, chain[1]) : -1);
    if (shape == 5) reg("z", chain[2], chain[3], quota_y, kRates[0]);
    const auto back = [&](int from, int to) {
      b.reg("back", from, {to}, {.quota = quota_back, .bytes = control ? 0u : 64u, .initial_tokens = initial});
    };
    if (shape == 2) back(chain[1], chain[1]);
    if (shape == 3) back(chain.back(), chain[0]);
    if (shape == 4) b.edge(rx, chain.back(), x.take);
    if (shape == 5) back(chain[2], chain[1]);
    if (shape == 6) reg("y", b.source("second", two), chain.back(), quota_y, y);
    std::mt19937_64 random(0);
    write_programs(b, order, random);
    return finished(b);
  }
};

// A plan of up to six actors: any graph downstream of its sources, any rates, quotas of 1 to 3.
inline Plan random_plan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  PlanBuilder b("random_" + std::to_string(seed));
  const int streams = 1 + pick(3);
  for (int s = 0; s < streams; ++s) b.stream("cpu:0", plan::StreamKind::kCompute, s);
  const int actors = 2 + pick(5);
  std::vector<int> all{pick(3) ? b.feed("feed", 0) : b.source("s0", 0)};
  const bool multirate = pick(3) == 0;
  const auto quota = [&] { return 1 + pick(3); };
  const auto rate = [&](int n) { return multirate && pick(3) == 0 ? 1 + pick(n) : 1; };
  const auto any = [&] { return all[static_cast<size_t>(pick(static_cast<int>(all.size())))]; };
  const auto sole_edge = [&](int actor) {
    // An edge of `actor` whose register has no other consumer, take 1, data, and nothing in its place yet; or -1.
    for (int e = 0; e < static_cast<int>(b.plan.edges.size()); ++e) {
      const plan::Edge& edge = b.plan.edges[e];
      if (edge.consumer != actor || edge.take != 1 || b.plan.registers[edge.reg].bytes == 0) continue;
      int readers = 0, taken = 0;
      for (const plan::Edge& other : b.plan.edges) readers += other.reg == edge.reg;
      for (const plan::Register& r : b.plan.registers) taken += r.in_place_of == e;
      if (readers == 1 && taken == 0) return e;
    }
    return -1;
  };
  const auto join = [&](const std::string& name, int from, int to, int initial) {
    const int q = std::max(quota(), initial);
    plan::RegOptions o{.quota = q, .bytes = pick(4) ? 64u : 0u, .emit_every = rate(3), .initial_tokens = initial};
    const bool writes = b.plan.actors[from].role != plan::ActorRole::kFeed;
    if (const int e = sole_edge(from); e >= 0 && writes && initial == 0 && o.bytes > 0 && pick(2)) {
      o.in_place_of = e;
      o.quota = b.plan.registers[b.plan.edges[e].reg].quota;
      o.emit_every = b.plan.edges[e].hold;
    }
    const int r = b.reg(name, from, {}, o);
    b.edge(r, to, std::min(rate(2), o.quota), rate(2));
  };
  for (int i = 1; i < actors; ++i) {
    const std::string number = std::to_string(i);
    if (i < actors - 1 && pick(8) == 0) {
      all.push_back(b.source("s" + number, pick(streams)));
      continue;
    }
    const int from = any();
    const int stream = pick(streams);
    const int made = i == actors - 1 ? b.sink("sink", stream) : b.actor("a" + number, stream);
    all.push_back(made);
    join("r" + number, from, made, 0);
  }
  const int extra = pick(4);
  for (int i = 0; i < extra; ++i) {
    const int from = any(), to = any();
    if (pick(3) == 0 && !b.plan.registers.empty()) {  // one more reader
      const int r = pick(static_cast<int>(b.plan.registers.size()));
      const bool in_place = std::any_of(b.plan.registers.begin(), b.plan.registers.end(), [&](const plan::Register& o) {
        return o.in_place_of >= 0 && b.plan.edges[o.in_place_of].reg == r;
      });
      if (!in_place && b.edge_of(r, to) < 0) b.edge(r, to, std::min(rate(2), b.plan.registers[r].quota), rate(2));
      continue;
    }
    const bool backward = from >= to;
    join("x" + std::to_string(i), from, to, backward ? (pick(4) ? 1 + pick(2) : 0) : (pick(5) ? 0 : 1));
  }
  write_programs(b, ProgramOrder::kRandom, random);
  for (plan::Actor& actor : b.plan.actors)
    if (is_started(actor) && multirate && pick(3) == 0) actor.starts = 1 + pick(3);
  return finished(b);
}

}  // namespace sluice::explorer
