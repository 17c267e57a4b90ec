#pragma once
// Eager tensors that a graph has taken over as constants.
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "tensor/trace.h"

namespace sluice {

// Thread safety: none; one thread traces.
//
// Invariants:
// 1. Tensors with the same content are one constant: single elements by their bytes, others by memory and version.
// 2. A tensor that was taken lives as long as this, so that no other has its identity.
class CapturedConstants {
 public:
  // The value of the graph that has the content of an eager tensor; kNoValue: the caller makes it, and calls add().
  graph::ValueId& of(const Value& value);
  // `content` is what `value` holds, under `name` in the graph.
  void add(const Value& value, const std::string& name, const Value& content);
  // The tensor of a constant by its name in the graph; null where there is none.
  const Tensor* find(const std::string& name) const;
  // Somebody has read what a tensor holds, which the graph is for from now on.
  void take(const Value& value);
  // Tells whether the content of some tensor in this memory was taken.
  bool taken_from(const Storage& memory) const { return memory_.contains(&memory); }
  // Hands all over, once.
  TakenContents give_taken();
  void give_tensors(std::map<std::string, Tensor>& variables);

 private:
  std::map<std::string, graph::ValueId> values_;  // by identity or, for single elements, by content
  std::vector<std::pair<std::string, Tensor>> tensors_;
  TakenContents taken_;
  std::vector<Value> alive_;
  std::unordered_set<const Storage*> memory_;
};

}  // namespace sluice
