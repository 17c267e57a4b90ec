// Ops of Sluice as ops of oneDNN's graphs.
#include <cstring>
#include <functional>
#include <numeric>

#include "backends/onednn_graph/drawing.h"

namespace onednn_graph {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error(why); }

// A node of the cluster, with its attributes by name.
class Call {
 public:
  Call(Drawing& to, const sluice_offload_node& node) : to_(to), node_(node) {}

  std::string op() const { return node_.op; }
  bool has(size_t i) const { return i < node_.num_inputs && node_.inputs[i] >= 0; }
  Id in(size_t i) const { return static_cast<Id>(node_.inputs[i]); }
  Id out(size_t o = 0) const { return static_cast<Id>(node_.outputs[o]); }
  size_t inputs() const { return node_.num_inputs; }
  size_t outputs() const { return node_.num_outputs; }
  const Ints& dims(size_t i) const { return to_.dims(in(i)); }
  int64_t rank(size_t i = 0) const { return static_cast<int64_t>(dims(i).size()); }
  // Whether anybody reads an output: another node of the cluster, or who reads the cluster's.
  bool reads(size_t o) const {
    const sluice_offload_graph& cluster = to_.cluster();
    for (size_t i = 0; i < cluster.num_outputs; ++i)
      if (static_cast<Id>(cluster.outputs[i]) == out(o)) return true;
    for (size_t n = 0; n < cluster.num_nodes; ++n)
      for (size_t i = 0; i < cluster.nodes[n]->num_inputs; ++i)
        if (cluster.nodes[n]->inputs[i] == node_.outputs[o]) return true;
    return false;
  }

  Ints ints(const char* name) const {
    const sluice_offload_attribute& found = attribute(name);
    if (found.kind == SLUICE_OFFLOAD_INTEGER) return {found.integer};
    return {found.integers, found.integers + found.count};
  }
  // One number for each of so many axes.
  Ints spread(const char* name, size_t axes, int64_t otherwise) const {
    Ints values = ints(name);
    if (values.empty()) values = {otherwise};
    if (values.size() == 1) values.assign(axes, values[0]);
    return values;
  }
  int64_t integer(const char* name) const { return attribute(name).integer; }
  double number(const char* name) const {
    const sluice_offload_attribute& found = attribute(name);
    return found.kind == SLUICE_OFFLOAD_INTEGER ? static_cast<double>(found.integer) : found.number;
  }
  std::string text(const char* name) const { return attribute(name).text; }
  bool given(const char* name) const { return attribute(name).kind != SLUICE_OFFLOAD_NONE; }
  int64_t axis(const char* name) const { return integer(name) < 0 ? integer(name) + rank() : integer(name); }

  Drawing::Op draw(dnnl_graph_op_kind_t kind) const { return {to_, kind}; }
  Drawing& drawing() const { return to_; }

 private:
  const sluice_offload_attribute& attribute(const char* name) const {
    for (size_t i = 0; i < node_.num_attributes; ++i)
      if (std::strcmp(node_.attributes[i]->name, name) == 0) return *node_.attributes[i];
    refuse("no attribute " + std::string(name));
  }

  Drawing& to_;
  const sluice_offload_node& node_;
};

using Draw = std::function<void(const Call&)>;

Draw unary(dnnl_graph_op_kind_t kind) {
  return [=](const Call& c) { c.draw(kind).in(c.in(0)).out(c.out()).add(); };
}

Draw binary(dnnl_graph_op_kind_t kind) {
  return [=](const Call& c) { c.draw(kind).in(c.in(0)).in(c.in(1)).out(c.out()).add(); };
}

Draw reduction(dnnl_graph_op_kind_t kind) {
  return [=](const Call& c) {
    Ints axes(static_cast<size_t>(c.rank()));
    std::iota(axes.begin(), axes.end(), 0);
    if (c.given("dim")) axes = c.ints("dim");
    c.draw(kind)
        .in(c.in(0))
        .out(c.out())
        .wholes(dnnl_graph_op_attr_axes, axes)
        .flag(dnnl_graph_op_attr_keep_dims, c.integer("keepdim") != 0)
        .add();
  };
}

Draw along(dnnl_graph_op_kind_t kind) {
  return
      [=](const Call& c) { c.draw(kind).in(c.in(0)).out(c.out()).whole(dnnl_graph_op_attr_axis, c.axis("dim")).add(); };
}

// A convolution, or one of its gradients, with its windows.
Drawing::Op windows(const Call& c, dnnl_graph_op_kind_t kind) {
  const auto axes = static_cast<size_t>(c.rank() - 2);
  const Ints padding = c.spread("padding", axes, 0);
  Drawing::Op op = c.draw(kind);
  op.wholes(dnnl_graph_op_attr_strides, c.spread("stride", axes, 1))
      .wholes(dnnl_graph_op_attr_pads_begin, padding)
      .wholes(dnnl_graph_op_attr_pads_end, padding)
      .wholes(dnnl_graph_op_attr_dilations, c.spread("dilation", axes, 1))
      .whole(dnnl_graph_op_attr_groups, c.integer("groups"))
      .text(dnnl_graph_op_attr_data_format, "NCX")
      .text(dnnl_graph_op_attr_weights_format, "OIX")
      .out(c.out());
  return op;
}

void convolution(const Call& c) {
  Drawing::Op op = windows(c, dnnl_graph_op_convolution);
  op.in(c.in(0)).in(c.in(1));
  if (c.has(2)) op.in(c.in(2));
  op.add();
}

void convolution_input_grad(const Call& c) {  // grad, weight
  windows(c, dnnl_graph_op_convolution_backward_data)
      .in(c.in(0))
      .in(c.in(1))
      .wholes(dnnl_graph_op_attr_dst_shape, c.drawing().dims(c.out()))
      .add();
}

void relu_backward(const Call& c) {  // grad, the relu's result
  c.draw(dnnl_graph_op_relu_backward).in(c.in(1)).in(c.in(0)).out(c.out()).flag(dnnl_graph_op_attr_use_dst, true).add();
}

void product(const Call& c, bool transpose_a, bool transpose_b) {
  if (c.rank(0) < 2 || c.rank(1) < 2) refuse("only products of matrices");
  Drawing::Op op = c.draw(dnnl_graph_op_matmul);
  op.in(c.in(0)).in(c.in(1));
  if (c.has(2)) op.in(c.in(2));
  op.out(c.out())
      .flag(dnnl_graph_op_attr_transpose_a, transpose_a)
      .flag(dnnl_graph_op_attr_transpose_b, transpose_b)
      .add();
}

void linear(const Call& c) {
  if (c.text("activation") != "none") refuse("a linear layer with an activation");
  product(c, false, true);
}

Drawing::Op pool(const Call& c, dnnl_graph_op_kind_t kind) {
  const Ints kernel = c.ints("kernel_size");
  if (c.rank() != static_cast<int64_t>(kernel.size()) + 2) refuse("a pool without a batch");
  const Ints padding = c.spread("padding", kernel.size(), 0);
  Drawing::Op op = c.draw(kind);
  op.in(c.in(0))
      .out(c.out())
      .wholes(dnnl_graph_op_attr_kernel, kernel)
      .wholes(dnnl_graph_op_attr_strides, c.spread("stride", kernel.size(), 1))
      .wholes(dnnl_graph_op_attr_pads_begin, padding)
      .wholes(dnnl_graph_op_attr_pads_end, padding)
      .text(dnnl_graph_op_attr_rounding_type, c.integer("ceil_mode") != 0 ? "ceil" : "floor")
      .text(dnnl_graph_op_attr_data_format, "NCX");
  return op;
}

void max_pool(const Call& c) {
  if (c.outputs() > 1 && c.reads(1)) refuse("indices of a maximum");
  const auto axes = c.ints("kernel_size").size();
  pool(c, dnnl_graph_op_max_pool).wholes(dnnl_graph_op_attr_dilations, c.spread("dilation", axes, 1)).add();
}

void avg_pool(const Call& c) {
  if (c.integer("divisor_override") != 0) refuse("a divisor of its own");
  if (c.integer("ceil_mode") != 0) refuse("windows that end outside");
  pool(c, dnnl_graph_op_avg_pool).flag(dnnl_graph_op_attr_exclude_pad, c.integer("count_include_pad") == 0).add();
}

void batch_norm(const Call& c) {  // x, mean, var, weight?, bias?
  if (!c.has(3) || !c.has(4)) refuse("a norm without weight and bias");
  c.draw(dnnl_graph_op_batch_norm_inference)
      .in(c.in(0))
      .in(c.in(3))
      .in(c.in(4))
      .in(c.in(1))
      .in(c.in(2))
      .out(c.out())
      .number(dnnl_graph_op_attr_epsilon, c.number("eps"))
      .text(dnnl_graph_op_attr_data_format, "NCX")
      .add();
}

void layer_norm(const Call& c) {
  for (size_t o = 1; o < c.outputs(); ++o)
    if (c.reads(o)) refuse("statistics of a norm");
  const auto axes = static_cast<int64_t>(c.ints("normalized_shape").size());
  if (axes != 1) refuse("a norm of several axes");
  if (c.has(1) != c.has(2)) refuse("a norm with one of weight and bias");
  Drawing::Op op = c.draw(dnnl_graph_op_layer_norm);
  op.in(c.in(0));
  if (c.has(1)) op.in(c.in(1)).in(c.in(2));
  op.out(c.out())
      .flag(dnnl_graph_op_attr_keep_stats, false)
      .flag(dnnl_graph_op_attr_use_affine, c.has(1))
      .whole(dnnl_graph_op_attr_begin_norm_axis, c.rank() - axes)
      .number(dnnl_graph_op_attr_epsilon, c.number("eps"))
      .add();
}

void gelu(const Call& c) {
  if (c.text("approximate") != "none") refuse("gelu by tanh");
  unary(dnnl_graph_op_gelu)(c);
}

void silu(const Call& c) {
  const Id gate = c.drawing().add_value(c.dims(0));
  c.draw(dnnl_graph_op_sigmoid).in(c.in(0)).out(gate).add();
  c.draw(dnnl_graph_op_multiply).in(c.in(0)).in(gate).out(c.out()).add();
}

void relu6(const Call& c) {
  c.draw(dnnl_graph_op_clamp)
      .in(c.in(0))
      .out(c.out())
      .number(dnnl_graph_op_attr_min, 0)
      .number(dnnl_graph_op_attr_max, 6)
      .add();
}

void hard_sigmoid(const Call& c) {
  c.draw(dnnl_graph_op_hard_sigmoid)
      .in(c.in(0))
      .out(c.out())
      .number(dnnl_graph_op_attr_alpha, 1.0 / 6)
      .number(dnnl_graph_op_attr_beta, 0.5)
      .add();
}

void reshape(const Call& c) {
  c.draw(dnnl_graph_op_static_reshape)
      .in(c.in(0))
      .out(c.out())
      .wholes(dnnl_graph_op_attr_shape, c.drawing().dims(c.out()))
      .flag(dnnl_graph_op_attr_special_zero, false)
      .add();
}

void permute(const Call& c) {
  c.draw(dnnl_graph_op_static_transpose)
      .in(c.in(0))
      .out(c.out())
      .wholes(dnnl_graph_op_attr_order, c.ints("dims"))
      .add();
}

void concat(const Call& c) {
  Drawing::Op op = c.draw(dnnl_graph_op_concat);
  for (size_t i = 0; i < c.inputs(); ++i) op.in(c.in(i));
  op.out(c.out()).whole(dnnl_graph_op_attr_axis, c.axis("dim")).add();
}

const std::map<std::string, Draw>& table() {
  static const std::map<std::string, Draw> all = {
      {"conv", convolution},
      {"conv_input_grad", convolution_input_grad},
      {"relu_backward", relu_backward},
      {"linear", linear},
      {"matmul", [](const Call& c) { product(c, c.integer("transpose_a") != 0, c.integer("transpose_b") != 0); }},
      {"max_pool", max_pool},
      {"max_pool_values", max_pool},
      {"avg_pool", avg_pool},
      {"batch_norm_infer", batch_norm},
      {"layer_norm", layer_norm},
      {"softmax", along(dnnl_graph_op_softmax)},
      {"log_softmax", along(dnnl_graph_op_log_softmax)},
      {"relu", unary(dnnl_graph_op_relu)},
      {"relu6", relu6},
      {"sigmoid", unary(dnnl_graph_op_sigmoid)},
      {"silu", silu},
      {"tanh", unary(dnnl_graph_op_tanh)},
      {"gelu", gelu},
      {"hardswish", unary(dnnl_graph_op_hard_swish)},
      {"hardsigmoid", hard_sigmoid},
      {"mish", unary(dnnl_graph_op_mish)},
      {"exp", unary(dnnl_graph_op_exp)},
      {"log", unary(dnnl_graph_op_log)},
      {"sqrt", unary(dnnl_graph_op_sqrt)},
      {"abs", unary(dnnl_graph_op_abs)},
      {"reciprocal", unary(dnnl_graph_op_reciprocal)},
      {"add", binary(dnnl_graph_op_add)},
      {"sub", binary(dnnl_graph_op_subtract)},
      {"mul", binary(dnnl_graph_op_multiply)},
      {"div", binary(dnnl_graph_op_divide)},
      {"maximum", binary(dnnl_graph_op_maximum)},
      {"minimum", binary(dnnl_graph_op_minimum)},
      {"sum", reduction(dnnl_graph_op_reduce_sum)},
      {"mean", reduction(dnnl_graph_op_reduce_mean)},
      {"amax", reduction(dnnl_graph_op_reduce_max)},
      {"amin", reduction(dnnl_graph_op_reduce_min)},
      {"reshape", reshape},
      {"permute", permute},
      {"concat", concat},
  };
  return all;
}

void check_value(const sluice_offload_type& type) {
  if (std::strcmp(type.dtype, "float32") != 0) refuse("only float32");
  if (type.rank > 6) refuse("more than 6 axes");
  for (size_t d = 0; d < type.rank; ++d)
    if (type.shape[d] == 0) refuse("a value without elements");
}

}  // namespace

void draw(Drawing& to, const sluice_offload_node& node) {
  const auto entry = table().find(node.op);
  if (entry == table().end()) refuse("no such op in oneDNN's graphs");
  const Call call(to, node);
  for (size_t i = 0; i < call.inputs(); ++i)
    if (call.has(i)) check_value(*to.cluster().values[call.in(i)]);
  for (size_t o = 0; o < call.outputs(); ++o)
    if (o == 0 || call.reads(o)) check_value(*to.cluster().values[call.out(o)]);
  entry->second(call);
}

}  // namespace onednn_graph
