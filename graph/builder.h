#pragma once
// An Executor that makes graph nodes instead of running: what tracing, decompositions and rewrites are built on.
#include <string>
#include <vector>

#include "graph/executor.h"
#include "graph/graph.h"

namespace sluice::graph {

// A value of a graph under construction.
class GraphValue : public ValueImpl {
 public:
  GraphValue(Graph& graph, ValueId id, DeviceId device)
      : ValueImpl(graph.type(id), device, /*traced=*/true), graph_(&graph), id_(id) {}
  Graph& graph() const { return *graph_; }
  ValueId id() const { return id_; }
  uint64_t version() const override { return 0; }  // a graph is functional

 private:
  Graph* graph_;
  ValueId id_;
};

// The context that is stamped on every node made.
struct NodeContext : Provenance {
  Placement placement = {};
  int quota = 0;
  int every = 1;
};

// Thread safety: as the graph it writes, one thread at a time. REQUIRES: the graph outlives it and its values.
class GraphBuilder : public Executor {
 public:
  GraphBuilder(Graph& graph, DeviceId default_device) : graph_(graph), default_device_(default_device) {}

  std::vector<Value> call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) override;
  // Throws kUnsupported: a graph is functional. A tracing executor functionalises writes.
  void assign(const Value& target, const Value& source) override;
  Value detach(const Value& value) override;

  Graph& graph() { return graph_; }
  // A handle on a value of the graph.
  Value value(ValueId id);
  // The id behind a handle; kNoValue for an undefined one. Foreign values go through import_value().
  ValueId id(const Value& value);

  NodeContext context;

 protected:
  // Brings a value from outside (an eager tensor) into the graph. Here: throws kValue.
  virtual ValueId import_value(const Value& value);
  // Called with the index of every node made, before its outputs are handed out.
  virtual void on_node(int node) { (void)node; }
  // The handle made for a value: override to return a subclass of GraphValue.
  virtual Value make_value(ValueId id, DeviceId device);

  Graph& graph_;
  DeviceId default_device_;
};

}  // namespace sluice::graph
