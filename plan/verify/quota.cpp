#include "plan/verify/quota.h"

#include <algorithm>
#include <numeric>

#include "plan/firing/network.h"
#include "plan/verify.h"

namespace sluice::plan {
namespace {

bool all_done(const std::vector<int>& left) {
  return std::all_of(left.begin(), left.end(), [](int n) { return n == 0; });
}

bool is_live(const Plan& plan, const std::vector<int>& repetitions) {
  Network network(plan);
  std::vector<int> schedule;
  return all_done(run_greedily(network, repetitions, schedule));
}

}  // namespace

int least_quota(const Plan& plan, const Adjacency& adjacency, int reg) {
  const Register& r = plan.registers[reg];
  int least = std::max(1, r.initial_tokens);
  for (const int e : adjacency.register_edges[reg]) {
    least = std::max(least, plan.edges[e].take);
    // An actor that feeds itself acquires the new slot while it still holds the old ones.
    if (plan.edges[e].consumer == r.producer) least = std::max(least, r.initial_tokens + 1);
  }
  return least;
}

std::vector<int> minimal_quotas(const Plan& given, const std::vector<bool>& fixed) {
  Plan plan = given;
  const Adjacency adjacency(plan);
  const int n = static_cast<int>(plan.registers.size());
  // Registers in place of one another have the same slots, so they rise together: the group of each.
  std::vector<int> group(n);
  std::iota(group.begin(), group.end(), 0);
  const auto root = [&](int r) {
    while (group[r] != r) r = group[r] = group[group[r]];
    return r;
  };
  for (int r = 0; r < n; ++r) {
    if (plan.registers[r].in_place_of >= 0) group[root(r)] = root(plan.edges[plan.registers[r].in_place_of].reg);
  }
  std::vector<int> least(n, 1), pinned(n, 0);
  for (int r = 0; r < n; ++r) {
    least[root(r)] = std::max(least[root(r)], least_quota(plan, adjacency, r));
    if (fixed[r]) pinned[root(r)] = std::max(pinned[root(r)], given.registers[r].quota);
  }
  std::vector<int> quota(n);
  const auto apply = [&] {
    for (int r = 0; r < n; ++r) plan.registers[r].quota = quota[root(r)];
  };
  for (int r = 0; r < n; ++r) {
    if (root(r) != r) continue;
    SLUICE_CHECK(pinned[r] == 0 || pinned[r] >= least[r],
                 "quota of register '{}': {}; its rates and initial tokens need at least {}", plan.registers[r].name,
                 pinned[r], least[r]);
    quota[r] = pinned[r] ? pinned[r] : least[r];
  }
  apply();

  const std::vector<int> repetitions = repetition_vector(plan);
  std::vector<int> raised;
  for (;;) {
    Network network(plan);
    std::vector<int> schedule;
    const std::vector<int> left = run_greedily(network, repetitions, schedule);
    if (all_done(left)) break;
    const std::vector<BlockedHop> cycle = shortest_blocking_cycle(network, left);
    int cheapest = -1;
    for (const BlockedHop& hop : cycle) {
      if (!hop.wait.credit || pinned[root(hop.wait.index)]) continue;
      if (cheapest < 0 || plan.registers[hop.wait.index].bytes < plan.registers[cheapest].bytes)
        cheapest = hop.wait.index;
    }
    SLUICE_CHECK(cheapest >= 0, "liveness: deadlock: {}; {}", blocking_cycle_str(plan, cycle),
                 std::any_of(cycle.begin(), cycle.end(), [](const BlockedHop& hop) { return hop.wait.credit; })
                     ? "the quotas given are too small"
                     : "no quota helps: the cycle needs an initial token");
    ++quota[root(cheapest)];
    raised.push_back(root(cheapest));
    apply();
  }
  // A later raise may have made an earlier one needless.
  constexpr size_t kMaxTrials = 256;
  for (size_t i = 0; i < raised.size() && i < kMaxTrials; ++i) {
    --quota[raised[i]];
    apply();
    if (is_live(plan, repetitions)) continue;
    ++quota[raised[i]];
    apply();
  }
  std::vector<int> quotas(n);
  for (int r = 0; r < n; ++r) quotas[r] = quota[root(r)];
  return quotas;
}

}  // namespace sluice::plan
