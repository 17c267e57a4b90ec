#pragma once
// Tensors that a graph reads and writes as its variables, and the names it gives out.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "tensor/tensor.h"
#include "tensor/traced_impl.h"

namespace sluice {

struct TraceVariable {
  // How an eager tensor over the variable's memory is a view of it. Throws kUnsupported where it is none.
  std::vector<ViewStep> steps_to(const EagerImpl& impl) const;

  std::string name;
  Tensor tensor;
  std::shared_ptr<TraceCell> cell;
  int index = -1;  // in the graph, once it is used
  graph::ValueId initial = graph::kNoValue;
  graph::ValueId laid = graph::kNoValue;  // the same over several devices, where it is global
  bool random = false;
  bool settled = false;  // build() was told a number that follows from it
};

// Thread safety: none; one thread traces.
//
// Invariants:
// 1. A block of memory is one variable at most.
// 2. used() are those that are in the graph, in its order.
class TraceVariables {
 public:
  bool empty() const { return all_.empty(); }
  // Null where the memory is no variable.
  TraceVariable* find(const Storage* memory) const;
  // REQUIRES: the memory of `tensor` is no variable yet. Variables keep their address.
  TraceVariable& add(const std::string& name, const Value& tensor, std::shared_ptr<TraceCell> cell);
  void use(TraceVariable& variable) { used_.push_back(&variable); }
  const std::vector<TraceVariable*>& used() const { return used_; }

 private:
  std::unordered_map<const Storage*, std::unique_ptr<TraceVariable>> all_;
  std::vector<TraceVariable*> used_;
};

// Names in a graph, each given out once.
class GraphNames {
 public:
  bool claim(const std::string& name) { return taken_.insert(name).second; }  // false: somebody has it
  std::string take(const std::string& prefix);                                // the next free one: "const0"

 private:
  std::set<std::string> taken_;
  std::map<std::string, int> next_;  // by prefix
};

}  // namespace sluice
