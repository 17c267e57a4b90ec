#include "plan/record/latency.h"

#include <algorithm>
#include <map>

#include "base/error.h"

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

double share_of(std::vector<int64_t>& times, double share) {
  std::ranges::sort(times);
  return times.empty() ? 0 : static_cast<double>(at_share(times, share));
}

// The time between two firings of an actor in which it waits for nobody: messages, and threads that wake.
std::vector<int64_t> wakes_of(const std::vector<Segment>& segments, const std::vector<Fired>& firings) {
  std::vector<int64_t> times;
  auto segment = segments.begin();
  for (const Fired& fired : firings) {
    int64_t ns = 0;
    for (; segment != segments.end() && segment->begin_ns < fired.begin_ns; ++segment) {
      const bool own = segment->spent == Spent::kHost || segment->spent == Spent::kDevice;
      ns += own ? segment->end_ns - segment->begin_ns : 0;
    }
    times.push_back(ns);
    while (segment != segments.end() && segment->begin_ns < fired.end_ns) ++segment;
  }
  return times;
}

// When the program had started each step here, since it began at `from`.
std::vector<int64_t> starts_of(const Timeline& timeline, int actor, const std::map<uint64_t, int64_t>& begins) {
  std::vector<int64_t> times;
  const std::vector<Segment>& segments = timeline.actors[actor];
  for (const Fired& fired : timeline.firings[actor]) {
    const auto begin = begins.find(fired.step);
    if (begin == begins.end()) continue;
    auto segment = std::ranges::lower_bound(segments, fired.begin_ns, {}, &Segment::begin_ns);
    while (segment != segments.begin()) {  // back to the wait for a step, if there was one
      --segment;
      if (segment->spent == Spent::kRun || (segment->spent == Spent::kInput && segment->who < 0)) break;
    }
    const bool waited = segment != segments.end() && segment->spent == Spent::kInput && segment->who < 0;
    times.push_back(waited ? std::max<int64_t>(0, segment->end_ns - begin->second) : 0);
  }
  return times;
}

}  // namespace

FiringLimits measured_limits(const Plan& plan, const Timeline& timeline, int from, double quantile) {
  SLUICE_CHECK(quantile > 0 && quantile <= 1, "latency: quantile: {}; must be above 0 and at most 1", quantile);
  std::map<uint64_t, int64_t> begins;
  for (const Fired& f : timeline.firings[from]) begins.try_emplace(f.step, f.begin_ns);
  FiringLimits limits;
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    std::vector<int64_t> times, wakes = wakes_of(timeline.actors[a], timeline.firings[a]), starts;
    for (const Fired& f : timeline.firings[a]) times.push_back(f.end_ns - f.begin_ns);
    if (is_started(plan.actors[a]) && a != from) starts = starts_of(timeline, a, begins);
    limits.firing_ns.push_back(share_of(times, quantile));
    limits.wake_ns.push_back(share_of(wakes, quantile));
    limits.start_ns.push_back(share_of(starts, quantile));
  }
  return limits;
}

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
