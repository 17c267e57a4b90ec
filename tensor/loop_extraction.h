#pragma once
// The nodes of a region that some values need, as a nested graph.
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/attr.h"
#include "graph/graph.h"

namespace sluice {

class Extraction {
 public:
  using Kept = std::function<bool(const graph::Node&)>;
  // Extracts nodes from number `first` on.
  Extraction(const graph::Graph& graph, size_t first) : graph_(graph), first_(first) {}

  // It will take the value.
  void stop_at(graph::ValueId value) { seen_.insert(value); }
  // Nodes of which `kept` is true are not part of it.
  void need(std::span<const graph::ValueId> values, const Kept& kept);
  // Readers of `value` read `other` instead, which is then needed.
  void read_instead(graph::ValueId value, graph::ValueId other, const Kept& kept);
  // The values that are needed and not part of it: those of the outside, and those of nodes that were kept.
  const std::vector<graph::ValueId>& outside() const { return outside_; }
  const std::vector<graph::ValueId>& kept() const { return kept_; }

  // Its next input.
  void take(graph::ValueId value) { numbers_.emplace(value, inputs_++); }
  void take(std::span<const graph::ValueId> values) {
    for (const graph::ValueId value : values) take(value);
  }
  // Throws kUnsupported where one of its nodes is nothing that a body can call.
  AttrGraph finish(std::span<const graph::ValueId> outputs);

 private:
  graph::ValueId read(graph::ValueId value) const;
  std::vector<int> in_order() const;

  const graph::Graph& graph_;
  const size_t first_;
  int inputs_ = 0;
  std::map<graph::ValueId, int> numbers_;
  std::map<graph::ValueId, graph::ValueId> instead_;
  std::set<graph::ValueId> seen_;
  std::set<int> nodes_;
  std::vector<graph::ValueId> outside_, kept_;
};

}  // namespace sluice
