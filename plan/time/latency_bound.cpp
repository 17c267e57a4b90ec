#include "plan/time/latency_bound.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>

#include "base/error.h"
#include "plan/firing/firing_counts.h"

namespace sluice::plan {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr uint64_t kLate = 1'000'000;  // periods: by then the plan is in its steady state

struct Node {
  int actor = 0;
  int64_t firing = 0;
};

// On which firings a firing depends. They do not decrease with its number, so of each actor the last one is enough.
class Dependencies {
 public:
  explicit Dependencies(const Plan& plan) : plan_(plan), adjacency_(plan) {}

  template <class Visit>
  void of(const Node& node, const Visit& visit) const {
    const auto [actor, n] = node;
    if (n > 0) visit(Node{actor, n - 1});
    for (const int e : adjacency_.in_edges[actor]) {
      const Edge& edge = plan_.edges[e];
      const Register& reg = plan_.registers[edge.reg];
      const int64_t tokens = (n / edge.hold + 1) * edge.take - reg.initial_tokens;
      if (tokens > 0) visit(Node{reg.producer, tokens * reg.emit_every - 1});
    }
    for (const int r : adjacency_.out_registers[actor]) {
      const Register& reg = plan_.registers[r];
      const int64_t token = n / reg.emit_every + reg.initial_tokens - reg.quota;
      if (token >= 0) freed(r, token, visit);
    }
  }

  // The last firing of each actor that `node` depends on, itself among them; -1: none.
  std::vector<int64_t> before(const Node& node) const {
    std::vector<int64_t> last(plan_.actors.size(), -1);
    last[node.actor] = node.firing;
    std::deque<int> changed{node.actor};
    while (!changed.empty()) {
      const int a = changed.front();
      changed.pop_front();
      of({a, last[a]}, [&](const Node& other) {
        if (other.firing <= last[other.actor]) return;
        last[other.actor] = other.firing;
        changed.push_back(other.actor);
      });
    }
    return last;
  }

  // The first firing of each actor that depends on `node`, itself among them; kNever: none does.
  std::vector<int64_t> behind(const Node& node) const {
    std::vector<std::vector<int>> dependents(plan_.actors.size());
    for (int a = 0; a < static_cast<int>(plan_.actors.size()); ++a)
      of({a, node.firing + static_cast<int64_t>(kLate)},
         [&](const Node& other) { dependents[other.actor].push_back(a); });
    std::vector<int64_t> first(plan_.actors.size(), kNever);
    first[node.actor] = node.firing;
    std::deque<int> changed{node.actor};
    while (!changed.empty()) {
      const int a = changed.front();
      changed.pop_front();
      for (const int other : dependents[a]) {
        const int64_t n = first_that_needs(other, {a, first[a]});
        if (n >= first[other]) continue;
        first[other] = n;
        changed.push_back(other);
      }
    }
    return first;
  }

 private:
  template <class Visit>
  void freed(int r, int64_t token, const Visit& visit) const {
    for (const int e : adjacency_.register_edges[r]) {
      const Edge& edge = plan_.edges[e];
      const int64_t firing = token / edge.take * edge.hold + edge.hold - 1;
      visit(Node{edge.consumer, firing});
      for (const int other : adjacency_.out_registers[edge.consumer]) {  // a slot that is in use in its place
        const Register& reg = plan_.registers[other];
        if (reg.in_place_of == e) freed(other, firing / reg.emit_every + reg.initial_tokens, visit);
      }
    }
  }

  bool needs(const Node& node, const Node& other) const {
    bool found = false;
    of(node, [&](const Node& one) { found |= one.actor == other.actor && one.firing >= other.firing; });
    return found;
  }

  // REQUIRES: late firings of `actor` depend on some of the other's.
  int64_t first_that_needs(int actor, const Node& other) const {
    int64_t high = 1;
    while (!needs({actor, high}, other)) high *= 2;
    int64_t low = high / 2;  // does not need it, or is 0
    if (needs({actor, low}, other)) return low;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (needs({actor, middle}, other) ? high : low) = middle;
    }
    return high;
  }

  const Plan& plan_;
  const Adjacency adjacency_;
};

// The firings that the end of one step waits for: of each actor from `low` to `high`.
class Cone {
 public:
  Cone(const Plan& plan, const Dependencies& dependencies, const Node& begin, const Node& end)
      : dependencies_(dependencies),
        begin_(begin),
        end_(end),
        low_(dependencies.before(begin)),
        high_(dependencies.before(end)) {
    offset_.resize(plan.actors.size());
    size_t count = 0;
    for (size_t a = 0; a < offset_.size(); ++a) {
      low_[a] = std::max<int64_t>(low_[a], 0);
      offset_[a] = count;
      count += static_cast<size_t>(std::max<int64_t>(0, high_[a] - low_[a] + 1));
    }
    done_.assign(count, -1);
  }

  int64_t low(int actor) const { return low_[actor]; }
  bool has(int actor) const { return high_[actor] >= low_[actor]; }

  // When the last firing ends if each takes what `weight` says, and none begins before `start` says.
  template <class Weight, class Start>
  double longest(const Weight& weight, const Start& start) {
    std::vector<Node> open{end_};
    while (!open.empty()) {
      const Node node = open.back();
      double& done = at(node);
      if (done >= 0) {
        open.pop_back();
        continue;
      }
      double begin = start(node.actor);
      const size_t before = open.size();
      dependencies_.of(node, [&](const Node& other) {
        if (other.firing < low_[other.actor]) return;
        const double its = at(other);
        if (its < 0) open.push_back(other);
        begin = std::max(begin, its);
      });
      if (open.size() > before) continue;  // those first
      open.pop_back();
      done = begin + weight(node.actor, node.actor == begin_.actor && node.firing == begin_.firing);
    }
    return at(end_);
  }

 private:
  double& at(const Node& node) {
    return done_[offset_[node.actor] + static_cast<size_t>(node.firing - low_[node.actor])];
  }

  const Dependencies& dependencies_;
  const Node begin_, end_;
  std::vector<int64_t> low_, high_;
  std::vector<size_t> offset_;
  std::vector<double> done_;  // by firing; -1: not yet known
};

LatencyBound bound_of_step(const Plan& plan, const Node& begin, const Node& end, const FiringLimits& limits) {
  const Dependencies dependencies(plan);
  Cone cone(plan, dependencies, begin, end);
  std::vector<int> actors(plan.streams.size(), 0);
  for (const Actor& actor : plan.actors) ++actors[actor.stream];
  const auto shared = [&](int actor) { return actors[plan.actors[actor].stream] > 1; };
  LatencyBound bound;
  bound.chain_ns = cone.longest(
      [&](int actor, bool begins) {
        if (shared(actor)) return 0.0;
        return limits.firing_ns[actor] + (begins ? 0 : limits.wake_ns[actor]);
      },
      [&](int actor) { return actor == begin.actor ? 0 : limits.start_ns[actor]; });
  std::vector<bool> touched(plan.streams.size(), false);
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a)
    if (shared(a) && cone.has(a)) touched[plan.actors[a].stream] = true;
  const std::vector<int64_t> behind = dependencies.behind(end);
  std::vector<double> work(plan.streams.size(), 0);
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    const double one = limits.firing_ns[a] + limits.wake_ns[a];
    if (!touched[plan.actors[a].stream] || one == 0) continue;
    if (behind[a] == kNever) bound.unheld = a;
    const int64_t last = a == end.actor ? end.firing + 1 : behind[a];
    work[plan.actors[a].stream] += one * static_cast<double>(std::max<int64_t>(0, last - cone.low(a)));
  }
  bound.ns = bound.chain_ns;
  for (size_t s = 0; s < work.size(); ++s) {
    if (work[s] > 0) bound.streams.emplace_back(static_cast<int>(s), work[s]);
    bound.ns += work[s];
  }
  if (bound.unheld >= 0) bound.ns = std::numeric_limits<double>::infinity();
  return bound;
}

}  // namespace

LatencyBound latency_bound(const Plan& plan, int from, int to, const FiringLimits& limits) {
  for (const Kernel& kernel : plan.kernels)
    SLUICE_CHECK_KIND(
        kUnsupported, kernel.collective < 0,
        "latency: kernel '{}' is a collective, so other ranks decide how long it takes; the plan must be of "
        "one rank",
        kernel.name);
  const FiringCounts counts(plan);
  LatencyBound most;
  for (uint64_t phase = 0; phase < counts.period(); ++phase) {
    const uint64_t step = kLate * counts.period() + phase;
    const auto first = static_cast<int64_t>(counts.after(from, step));
    const auto last = static_cast<int64_t>(counts.after(to, step + 1)) - 1;
    if (last < static_cast<int64_t>(counts.after(to, step))) continue;  // the sink answers several steps at once
    LatencyBound bound = bound_of_step(plan, {from, first}, {to, last}, limits);
    if (bound.ns >= most.ns) most = std::move(bound);
    if (most.unheld >= 0) break;
  }
  return most;
}

}  // namespace sluice::plan
