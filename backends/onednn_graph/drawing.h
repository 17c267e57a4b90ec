#pragma once
// A cluster as a graph of oneDNN.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "backends/onednn_graph/library.h"

namespace onednn_graph {

using Ints = std::vector<int64_t>;
using Id = size_t;  // of a value: its number in the cluster, or a further one for what an op of several is made of

dnnl_graph_logical_tensor_t tensor_of(Id id, const Ints& dims, dnnl_graph_layout_type_t layout, bool constant);

class Drawing {
 public:
  // Throws std::runtime_error with the reason where the cluster has no such form.
  Drawing(const sluice_offload_graph& cluster, dnnl_fpmath_mode_t precision);

  const sluice_offload_graph& cluster() const { return cluster_; }
  // A number has one axis here.
  const Ints& dims(Id id) const { return dims_[id]; }
  bool is_constant(Id id) const { return id < cluster_.num_inputs && adapter::constant(cluster_, id) != nullptr; }
  // Those that oneDNN makes of it, each of which it can compile; throws where it cannot.
  std::vector<Owned<dnnl_graph_partition_t>> partitions();

  Id add_value(Ints dims);
  // An op that is made attribute by attribute, and then added.
  class Op {
   public:
    Op(Drawing& to, dnnl_graph_op_kind_t kind);
    Op& in(Id id);
    Op& out(Id id);
    Op& number(dnnl_graph_op_attr_t attribute, double value);
    Op& whole(dnnl_graph_op_attr_t attribute, int64_t value);
    Op& wholes(dnnl_graph_op_attr_t attribute, const Ints& values);
    Op& flag(dnnl_graph_op_attr_t attribute, bool value);
    Op& text(dnnl_graph_op_attr_t attribute, const char* value);
    void add();

   private:
    Drawing& to_;
    Owned<dnnl_graph_op_t> op_;
  };

 private:
  void end(Id id);

  const Library& library_ = Library::instance();
  const sluice_offload_graph& cluster_;
  std::vector<Ints> dims_;
  Owned<dnnl_graph_graph_t> graph_;
  size_t ops_ = 0;
  std::set<size_t> ends_;  // ops that compute nothing
};

// Draws one node of the cluster. Throws std::runtime_error with the reason where oneDNN's graphs have no such op.
void draw(Drawing& to, const sluice_offload_node& node);

}  // namespace onednn_graph
