#pragma once
// Small random plans whose kernels take time.
#include <random>

#include "support/plan_builder.h"

namespace sluice::plan {

// Two to five actors behind a feed on up to three streams, costs from 0 to 9, some rates, some feedback. Kernels are
// host functions, by name "0" to "9" what they cost. `quotas`: of the registers, where not their rates' least.
inline Plan random_timed_plan(uint64_t seed, const std::vector<int>& quotas = {}) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  PlanBuilder b("timed");
  const int streams = 2 + below(2);
  for (int s = 0; s < streams; ++s) b.stream("cpu:0", StreamKind::kCompute, s);
  std::vector<int> actors{b.feed("feed", below(streams))};
  const int n = 2 + below(3);
  for (int i = 0; i < n; ++i) actors.push_back(b.actor("a" + std::to_string(i), below(streams)));
  actors.push_back(b.sink("sink", below(streams)));
  std::vector<int> rate(actors.size(), 1);  // firings per step
  for (size_t i = 1; i + 1 < actors.size(); ++i) rate[i] = below(4) == 0 ? 2 : 1;
  size_t registers = 0;
  const auto join = [&](size_t from, size_t to, int initial) {
    const int emit_every = rate[from] > rate[to] && below(2) ? rate[from] : 1;
    const int made = rate[from] / emit_every;  // per step
    const int take = std::max(1, made / rate[to]), hold = std::max(1, rate[to] / made);
    const int quota = quotas.empty() ? std::max(1, take + initial) : quotas[registers];
    const int r = b.reg("r" + std::to_string(registers++), actors[from], {},
                        {.quota = quota,
                         .bytes = 64u * static_cast<unsigned>(below(4)),
                         .emit_every = emit_every,
                         .initial_tokens = initial * take});
    b.edge(r, actors[to], take, hold);
  };
  for (size_t i = 1; i < actors.size(); ++i)
    join(below(3) == 0 ? static_cast<size_t>(below(static_cast<int>(i))) : i - 1, i, 0);
  if (below(3) == 0) {
    const auto to = static_cast<size_t>(below(static_cast<int>(actors.size()) - 1));
    join(actors.size() - 1, to, 1 + below(2));
  }
  // A feed that fires once a step alone starts an actor that fires twice: by holding its token.
  for (size_t i = 1; i + 1 < actors.size(); ++i) {
    const int cost = below(10);
    b.run(actors[i], "host_function", {}, {}, cost, {{"name", std::to_string(cost)}});
  }
  return b.build(false);
}

}  // namespace sluice::plan
