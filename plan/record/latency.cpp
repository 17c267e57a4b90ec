#include "plan/record/latency.h"

#include <algorithm>
#include <map>

namespace sluice::plan {
namespace {

// Which actors the tokens of an actor reach, and those of whom they reach.
std::vector<bool> reached_from(const Plan& plan, const Adjacency& adjacency, int actor) {
  std::vector<bool> reached(plan.actors.size(), false);
  std::vector<int> next{actor};
  reached[actor] = true;
  while (!next.empty()) {
    const int a = next.back();
    next.pop_back();
    for (const int r : adjacency.out_registers[a]) {
      for (const int e : adjacency.register_edges[r]) {
        const int to = plan.edges[e].consumer;
        if (!reached[to]) next.push_back(to);
        reached[to] = true;
      }
    }
  }
  return reached;
}

int64_t at_share(const std::vector<int64_t>& sorted, double share) {
  const auto at = static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5);
  return sorted[at];
}

}  // namespace

std::vector<PathLatency> latencies_of(const Plan& plan, const Timeline& timeline) {
  const Adjacency adjacency(plan);
  std::vector<PathLatency> found;
  for (int from = 0; from < static_cast<int>(plan.actors.size()); ++from) {
    if (!is_started(plan.actors[from])) continue;
    std::map<uint64_t, int64_t> begins;
    for (const Fired& f : timeline.firings[from]) begins.try_emplace(f.step, f.begin_ns);
    const std::vector<bool> reached = reached_from(plan, adjacency, from);
    for (int to = 0; to < static_cast<int>(plan.actors.size()); ++to) {
      if (plan.actors[to].role != ActorRole::kSink || !reached[to]) continue;
      std::map<uint64_t, int64_t> ends;
      for (const Fired& f : timeline.firings[to]) ends[f.step] = std::max(ends[f.step], f.end_ns);
      std::vector<int64_t> times;
      PathLatency path{.from = from, .to = to};
      for (const auto& [step, end_ns] : ends) {
        const auto begin = begins.find(step);
        if (begin == begins.end()) continue;
        times.push_back(end_ns - begin->second);
        path.mean_ns += static_cast<double>(times.back());
      }
      std::ranges::sort(times);
      path.steps = times.size();
      if (!times.empty()) {
        path.mean_ns /= static_cast<double>(times.size());
        path.min_ns = times.front();
        path.p50_ns = at_share(times, 0.5);
        path.p99_ns = at_share(times, 0.99);
        path.max_ns = times.back();
      }
      found.push_back(path);
    }
  }
  return found;
}

}  // namespace sluice::plan
