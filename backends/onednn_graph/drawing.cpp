#include "backends/onednn_graph/drawing.h"

namespace onednn_graph {

dnnl_graph_logical_tensor_t tensor_of(Id id, const Ints& dims, dnnl_graph_layout_type_t layout, bool constant) {
  dnnl_dims_t sizes = {};
  for (size_t d = 0; d < dims.size(); ++d) sizes[d] = dims[d];
  dnnl_graph_logical_tensor_t tensor;
  const auto property = constant ? dnnl_graph_tensor_property_constant : dnnl_graph_tensor_property_variable;
  Library::check(Library::instance().dnnl_graph_logical_tensor_init_with_dims(
                     &tensor, id, dnnl_f32, static_cast<int32_t>(dims.size()), sizes, layout, property),
                 "a tensor");
  return tensor;
}

Drawing::Drawing(const sluice_offload_graph& cluster, dnnl_fpmath_mode_t precision) : cluster_(cluster) {
  for (size_t v = 0; v < cluster.num_values; ++v) {
    const sluice_offload_type& type = *cluster.values[v];
    dims_.emplace_back(type.shape, type.shape + type.rank);
    if (dims_.back().empty()) dims_.back() = {1};
  }
  dnnl_graph_graph_t graph = nullptr;
  Library::check(library_.dnnl_graph_graph_create_with_fpmath_mode(&graph, dnnl_cpu, precision), "a graph");
  graph_ = owned(graph, library_.dnnl_graph_graph_destroy);
  std::vector<bool> read(cluster.num_values);
  for (size_t n = 0; n < cluster.num_nodes; ++n) {
    draw(*this, *cluster.nodes[n]);
    for (size_t i = 0; i < cluster.nodes[n]->num_inputs; ++i)
      if (cluster.nodes[n]->inputs[i] >= 0) read[static_cast<size_t>(cluster.nodes[n]->inputs[i])] = true;
  }
  // oneDNN would not say that a value which another op reads is wanted, too.
  for (size_t o = 0; o < cluster.num_outputs; ++o)
    if (const auto id = static_cast<Id>(cluster.outputs[o]); read[id]) end(id);
  Library::check(library_.dnnl_graph_graph_finalize(graph), "a graph of these ops");
  Library::check(library_.dnnl_graph_graph_filter(graph, dnnl_graph_partition_policy_fusion), "partitions");
}

void Drawing::end(Id id) {
  ends_.insert(ops_);
  Op(*this, dnnl_graph_op_end).in(id).add();
}

Id Drawing::add_value(Ints dims) {
  dims_.push_back(std::move(dims));
  return dims_.size() - 1;
}

std::vector<Owned<dnnl_graph_partition_t>> Drawing::partitions() {
  size_t count = 0;
  Library::check(library_.dnnl_graph_graph_get_partition_num(graph_.get(), &count), "partitions");
  std::vector<dnnl_graph_partition_t> found(count);
  Library::check(library_.dnnl_graph_graph_get_partitions(graph_.get(), count, found.data()), "partitions");
  std::vector<Owned<dnnl_graph_partition_t>> all, made;
  for (const dnnl_graph_partition_t each : found) all.push_back(owned(each, library_.dnnl_graph_partition_destroy));
  for (Owned<dnnl_graph_partition_t>& each : all) {
    size_t ops = 0;
    Library::check(library_.dnnl_graph_partition_get_op_num(each.get(), &ops), "ops of a partition");
    std::vector<size_t> ids(ops);
    Library::check(library_.dnnl_graph_partition_get_ops(each.get(), ops, ids.data()), "ops of a partition");
    if (ops == 1 && ends_.find(ids[0]) != ends_.end()) continue;
    uint8_t supported = 0;
    Library::check(library_.dnnl_graph_partition_is_supported(each.get(), &supported), "a partition");
    if (supported == 0) throw std::runtime_error("oneDNN: not supported");
    made.push_back(std::move(each));
  }
  return made;
}

Drawing::Op::Op(Drawing& to, dnnl_graph_op_kind_t kind) : to_(to) {
  dnnl_graph_op_t op = nullptr;
  const size_t id = to.ops_++;
  Library::check(to.library_.dnnl_graph_op_create(&op, id, kind, std::to_string(id).c_str()), "an op");
  op_ = owned(op, to.library_.dnnl_graph_op_destroy);
}

Drawing::Op& Drawing::Op::in(Id id) {
  const auto tensor = tensor_of(id, to_.dims(id), dnnl_graph_layout_type_strided, to_.is_constant(id));
  Library::check(to_.library_.dnnl_graph_op_add_input(op_.get(), &tensor), "an input");
  return *this;
}
Drawing::Op& Drawing::Op::out(Id id) {
  const auto tensor = tensor_of(id, to_.dims(id), dnnl_graph_layout_type_strided, false);
  Library::check(to_.library_.dnnl_graph_op_add_output(op_.get(), &tensor), "an output");
  return *this;
}
Drawing::Op& Drawing::Op::number(dnnl_graph_op_attr_t attribute, double value) {
  const auto single = static_cast<float>(value);
  Library::check(to_.library_.dnnl_graph_op_set_attr_f32(op_.get(), attribute, &single, 1), "an attribute");
  return *this;
}
Drawing::Op& Drawing::Op::whole(dnnl_graph_op_attr_t attribute, int64_t value) { return wholes(attribute, {value}); }
Drawing::Op& Drawing::Op::wholes(dnnl_graph_op_attr_t attribute, const Ints& values) {
  Library::check(to_.library_.dnnl_graph_op_set_attr_s64(op_.get(), attribute, values.data(), values.size()),
                 "an attribute");
  return *this;
}
Drawing::Op& Drawing::Op::flag(dnnl_graph_op_attr_t attribute, bool value) {
  const uint8_t byte = value ? 1 : 0;
  Library::check(to_.library_.dnnl_graph_op_set_attr_bool(op_.get(), attribute, &byte, 1), "an attribute");
  return *this;
}
Drawing::Op& Drawing::Op::text(dnnl_graph_op_attr_t attribute, const char* value) {
  Library::check(to_.library_.dnnl_graph_op_set_attr_str(op_.get(), attribute, value, 1), "an attribute");
  return *this;
}
void Drawing::Op::add() { Library::check(to_.library_.dnnl_graph_add_op(to_.graph_.get(), op_.get()), "an op"); }

}  // namespace onednn_graph
