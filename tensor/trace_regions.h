#pragma once
// Branches and bodies of loops, while they are traced.
#include <cstdint>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/builder.h"

namespace sluice {

// A part of the trace that runs in its own way, a branch or the body of a loop, while it is traced: calls in it read
// what was made before through what bring() makes of that.
//
// Invariant: a value that is no node made since `first` belongs to the outside.
struct TraceRegion {
  explicit TraceRegion(const char* owner, const char* advice) : owner(owner), advice(advice) {}
  virtual ~TraceRegion() = default;
  // The values that the inside reads in place of `value`, one for each of the ways in which it runs. Called outside.
  virtual std::vector<Value> bring(const Value& value) = 0;
  // Is `value`, a constant, brought too?
  virtual bool brings_constant(const Value& value) const { return (void)value, false; }

  const char* const owner;     // for errors: "cond: a branch"
  const char* const advice;    // where it wants to write outside
  size_t current = 0;          // the way that is traced
  size_t first = 0;            // nodes made before
  uint64_t first_storage = 0;  // 0: not begun
  // A value that was brought, by whose handle and which value of the graph.
  struct Routed {
    Value from;
    graph::ValueId id;
    std::vector<Value> outputs;
  };
  std::map<std::pair<const ValueImpl*, graph::ValueId>, Routed> routed;
  std::unordered_set<graph::ValueId> copies;  // those outputs
};

// The regions that are being traced, one inside the other, and those that have been closed.
//
// Thread safety: none; one thread traces.
// Invariant: nodes of a closed region are for nobody outside of it.
class TraceRegions {
 public:
  // The graph outlives this.
  explicit TraceRegions(const graph::Graph& graph) : graph_(graph) {}

  bool any() const { return !stack_.empty(); }
  TraceRegion& innermost() const { return *stack_.back(); }
  // Nodes that are made from now on are part of `region`, inside of those begun before, until end(). `closed`: these
  // nodes are not for the outside.
  void begin(TraceRegion& region, size_t current);
  void end(bool closed);

  // Tells whether `id` was made outside of the innermost region.
  bool outside(graph::ValueId id) const;
  // Tells whether the innermost region may write to what holds `id`: a value of its own, and no copy that was brought.
  bool owns(graph::ValueId id) const { return !outside(id) && !innermost().copies.contains(id); }
  // Tells whether `id` was made in a region that has been closed.
  bool closed(graph::ValueId id) const;

  // Leaves the innermost region for as long as it lives.
  class Outside {
   public:
    explicit Outside(TraceRegions& regions) : stack_(regions.stack_), left_(stack_.back()) { stack_.pop_back(); }
    ~Outside() { stack_.push_back(left_); }
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;

   private:
    std::vector<TraceRegion*>& stack_;
    TraceRegion* const left_;
  };

 private:
  const graph::Graph& graph_;
  std::vector<TraceRegion*> stack_;                // innermost last
  std::vector<std::pair<size_t, size_t>> closed_;  // their nodes
};

}  // namespace sluice
