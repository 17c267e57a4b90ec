#include <deque>
#include <limits>

#include "plan/firing/network.h"

namespace sluice::plan {
namespace {

// Beyond this, an order without a direct dependency counts as not fixed: a control register makes it so.
constexpr int64_t kMaxWork = 50'000'000;

}  // namespace

FixedOrder::FixedOrder(const Plan& plan) : plan_(plan), initial_(plan), component_(plan.actors.size(), -1) {
  int components = 0;
  for (int root = 0; root < initial_.actors(); ++root) {
    if (component_[root] >= 0) continue;
    std::vector<int> queue{root};
    component_[root] = components;
    const auto visit = [&](int a) {
      if (component_[a] >= 0) return;
      component_[a] = components;
      queue.push_back(a);
    };
    for (size_t i = 0; i < queue.size(); ++i) {
      for (const int e : initial_.adjacency().in_edges[queue[i]]) visit(initial_.ends(e).producer);
      for (const int r : initial_.adjacency().out_registers[queue[i]]) {
        for (const int e : initial_.adjacency().register_edges[r]) visit(plan.edges[e].consumer);
      }
    }
    ++components;
  }
}

bool FixedOrder::precedes(int a, int64_t k, int b, int64_t m) {
  if (a == b) return k < m;
  if (component_[a] != component_[b]) return false;
  // Direct, at rate one: a token of `a`, or a slot `a` gives back.
  for (const int e : initial_.adjacency().in_edges[b]) {
    const Edge& edge = plan_.edges[e];
    const Register& r = plan_.registers[edge.reg];
    if (r.producer == a && r.emit_every == 1 && edge.take == 1 && edge.hold == 1 && m - r.initial_tokens >= k)
      return true;
  }
  for (const int e : initial_.adjacency().in_edges[a]) {
    const Edge& edge = plan_.edges[e];
    const Register& r = plan_.registers[edge.reg];
    if (r.producer == b && r.emit_every == 1 && edge.take == 1 && edge.hold == 1 && m + r.initial_tokens - r.quota >= k)
      return true;
  }
  // Everything connected to `a` is bounded by it, so this ends.
  if (work_ > kMaxWork) return false;
  Network network = initial_;
  std::vector<int> touched;
  std::deque<int> queue;
  std::vector<bool> queued(component_.size());
  for (int v = 0; v < network.actors(); ++v) {
    if (component_[v] != component_[a]) continue;
    network.rules[v].on_start(std::numeric_limits<int32_t>::max());
    queue.push_back(v);
    queued[v] = true;
  }
  work_ += network.actors();
  while (!queue.empty()) {
    const int v = queue.front();
    queue.pop_front();
    queued[v] = false;
    if (!network.rules[v].can_fire()) continue;
    if (v == a && static_cast<int64_t>(network.rules[v].firings()) >= k) continue;
    touched.clear();
    network.fire(v, touched);
    if (++work_ > kMaxWork) return false;
    if (v == b && static_cast<int64_t>(network.rules[v].firings()) > m) return false;
    for (const int t : touched) {
      if (queued[t]) continue;
      queued[t] = true;
      queue.push_back(t);
    }
  }
  return true;
}

}  // namespace sluice::plan
