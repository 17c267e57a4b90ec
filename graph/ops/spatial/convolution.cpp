#include "graph/ops/convolution.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/complex.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/extent.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/spatial/spatial.h"

namespace sluice::ops {
namespace {

// The last four params of the three ops.
struct Geometry {
  Ints stride, padding, dilation;
  int64_t groups = 1;
};
Geometry geometry_of(const Attrs& attrs) {
  const int i = static_cast<int>(attrs.size()) - 4;
  return {attr<Ints>(attrs, i), attr<Ints>(attrs, i + 1), attr<Ints>(attrs, i + 2), attr<int64_t>(attrs, i + 3)};
}
Windows windows_of(const Shape& weight, const Geometry& g) {
  return {Ints(weight.begin() + 2, weight.end()), g.stride, g.padding, g.dilation};
}

// Shape of conv's output; checks that x, weight and the geometry fit.
Shape conv_shape(const char* where, const Shape& x, const Shape& w, const Geometry& g) {
  const int dims = w.rank() - 2;
  SLUICE_CHECK_KIND(kRuntime, dims >= 1 && dims <= 3,
                    "{}: weight has the wrong rank: {}; it must be (out, in/groups, 1 to 3 kernel dims)", where,
                    w.str());
  SLUICE_CHECK_KIND(kRuntime, x.rank() == w.rank(),
                    "{}: ranks differ: input is {}, weight is {}; input must be (batch, channels, {} spatial dims)",
                    where, x.str(), w.str(), dims);
  check_per_dim(g.stride, dims, 1, where, "stride");
  check_per_dim(g.padding, dims, 0, where, "padding");
  check_per_dim(g.dilation, dims, 1, where, "dilation");
  SLUICE_CHECK_KIND(
      kRuntime, g.groups >= 1 && w[0] % g.groups == 0,
      "{}: groups do not divide the output channels: groups {}, weight {}; weight.shape[0] must be a multiple "
      "of groups",
      where, g.groups, w.str());
  SLUICE_CHECK_KIND(
      kRuntime, Wide{x[1]} == Wide{w[1]} * g.groups,
      "{}: channels differ: input is {}, weight is {}, groups {}; input.shape[1] must equal weight.shape[1] * groups",
      where, x.str(), w.str(), g.groups);
  Shape y = {x[0], w[0]};
  for (int d = 0; d < dims; ++d) {
    SLUICE_CHECK_KIND(kRuntime, w[2 + d] >= 1, "{}: kernel is empty: weight is {}; kernel dims must be at least 1",
                      where, w.str());
    const int64_t n = window_count(x[2 + d], w[2 + d], g.stride[d], g.padding[d], g.dilation[d]);
    SLUICE_CHECK_KIND(kRuntime, n >= 1,
                      "{}: kernel is larger than the padded input: input is {}, weight is {}, padding {}, dilation {}; "
                      "dilation * (kernel - 1) + 1 must be at most input + 2 * padding",
                      where, x.str(), w.str(), g.padding[d], g.dilation[d]);
    y.push_back(n);
  }
  return y;
}

void check_operands(const char* where, Types in) {
  check_same_dtype(in.first(2), where);
  check_floating(in[0], where);
}
void check_grad_shape(const char* where, const Shape& got, const Shape& expected) {
  SLUICE_CHECK_KIND(kRuntime, got == expected, "{}: gradient has the wrong shape: {}; the convolution's output is {}",
                    where, got.str(), expected.str());
}

std::vector<TensorType> infer_conv(Types in, Present present, const Attrs& attrs) {
  check_operands("conv", in);
  const Shape y = conv_shape("conv", in[0].shape, in[1].shape, geometry_of(attrs));
  if (in.size() > 2 && present[2]) {
    SLUICE_CHECK_KIND(kRuntime, in[2].dtype == in[0].dtype && in[2].shape == Shape({y[1]}),
                      "conv: bias does not fit: {}; weight {} asks for {}", in[2].str(), in[1].shape.str(),
                      TensorType{in[0].dtype, {y[1]}}.str());
  }
  return {{in[0].dtype, y}};
}
std::vector<TensorType> infer_input_grad(Types in, Present, const Attrs& attrs) {
  check_operands("conv_input_grad", in);
  const Shape x(attr<Ints>(attrs, 0));
  check_grad_shape("conv_input_grad", in[0].shape, conv_shape("conv_input_grad", x, in[1].shape, geometry_of(attrs)));
  return {{in[0].dtype, x}};
}
std::vector<TensorType> infer_weight_grad(Types in, Present, const Attrs& attrs) {
  check_operands("conv_weight_grad", in);
  const Shape w(attr<Ints>(attrs, 0));
  check_grad_shape("conv_weight_grad", in[0].shape, conv_shape("conv_weight_grad", in[1].shape, w, geometry_of(attrs)));
  return {{in[0].dtype, w}};
}

ConvOptions options_of(const Attrs& attrs) {
  Geometry g = geometry_of(attrs);
  return {g.stride, g.padding, g.dilation, g.groups};
}

// conv is bilinear; <g, conv(x, w)> = <input_grad(g, w), x> = <weight_grad(g, x), w> gives all nine rules.
std::vector<Value> grad_conv(const GradContext& c) {
  const Value &x = c.inputs[0], &w = c.inputs[1], &dy = c.grad_outputs[0];
  const auto o = options_of(c.attrs);
  std::vector<Value> grads(c.inputs.size());
  if (c.needs[0]) grads[0] = conv_input_grad(dy, w, x.shape().vec(), o);
  if (c.needs[1]) grads[1] = conv_weight_grad(dy, x, w.shape().vec(), o);
  if (grads.size() > 2 && c.needs[2]) {
    Ints axes = {0};
    for (int i = 2; i < dy.rank(); ++i) axes.push_back(i);
    grads[2] = sum(dy, axes);
  }
  return grads;
}
std::vector<Value> grad_input_grad(const GradContext& c) {
  const Value &g = c.inputs[0], &w = c.inputs[1], &v = c.grad_outputs[0];
  const auto o = options_of(c.attrs);
  std::vector<Value> grads(2);
  if (c.needs[0]) grads[0] = conv(v, w, {}, o);
  if (c.needs[1]) grads[1] = conv_weight_grad(g, v, w.shape().vec(), o);
  return grads;
}
std::vector<Value> grad_weight_grad(const GradContext& c) {
  const Value &g = c.inputs[0], &x = c.inputs[1], &u = c.grad_outputs[0];
  const auto o = options_of(c.attrs);
  std::vector<Value> grads(2);
  if (c.needs[0]) grads[0] = conv(x, u, {}, o);
  if (c.needs[1]) grads[1] = conv_input_grad(g, u, x.shape().vec(), o);
  return grads;
}

// (N, G, channels per group * K, P) from x, and (1, G, O/G, C/G * K) from the weight: then each op is one product.
Value grouped_columns(const Value& x, const Windows& windows, int64_t groups) {
  const Value u = unfold(x, windows);
  const Shape s = u.shape();
  return reshape(u, {s[0], groups, s[1] / groups * s[2], s[3]});
}
Value grouped(const Value& y, int64_t groups) {  // (N, O, P...) as (N, G, O/G, P)
  int64_t p = 1;
  for (int i = 2; i < y.rank(); ++i) p *= y.shape()[i];
  return reshape(y, {y.shape()[0], groups, y.shape()[1] / groups, p});
}
Value grouped_weight(const Value& w, int64_t groups) {
  const int64_t o = w.shape()[0];
  return reshape(w, {1, groups, o / groups, o == 0 ? 0 : numel(w.shape()) / o});
}

std::vector<Value> decompose_conv(std::span<const Value> in, const Attrs& attrs) {
  const Geometry g = geometry_of(attrs);
  const Shape y = conv_shape("conv", in[0].shape(), in[1].shape(), g);
  Value out = matmul(grouped_weight(in[1], g.groups), grouped_columns(in[0], windows_of(in[1].shape(), g), g.groups));
  out = reshape(out, y.vec());
  if (in.size() > 2 && in[2].defined()) {
    Ints bias(y.rank(), 1);
    bias[1] = y[1];
    out = add(out, reshape(in[2], bias));
  }
  return {out};
}
std::vector<Value> decompose_input_grad(std::span<const Value> in, const Attrs& attrs) {
  const Geometry g = geometry_of(attrs);
  const Shape x(attr<Ints>(attrs, 0));
  const Windows windows = windows_of(in[1].shape(), g);
  const Value columns = matmul(grouped_weight(in[1], g.groups), grouped(in[0], g.groups), true, false);
  int64_t k = 1;
  for (int64_t d : windows.kernel) k *= d;
  return {fold(reshape(columns, {x[0], x[1], k, columns.shape().back()}), x, windows)};
}
std::vector<Value> decompose_weight_grad(std::span<const Value> in, const Attrs& attrs) {
  const Geometry g = geometry_of(attrs);
  const Ints& w = attr<Ints>(attrs, 0);
  const Value columns = grouped_columns(in[1], windows_of(Shape(w), g), g.groups);
  return {reshape(sum(matmul(grouped(in[0], g.groups), columns, false, true), Ints{0}), w)};
}

const Sbp kB = Sbp::broadcast(), kP = Sbp::partial_sum();

std::vector<SbpRow> sbp_conv(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = {{{Sbp::split(0), kB, kB}, {Sbp::split(0)}}, {{kB, kB, kB}, {kB}}};
  const bool bias = in.size() > 2 && in[2].shape.rank() == 1;
  if (attr<int64_t>(attrs, 3) == 1) {
    rows.push_back({{kB, Sbp::split(0), bias ? Sbp::split(0) : kB}, {Sbp::split(1)}});
    if (!bias) rows.push_back({{Sbp::split(1), Sbp::split(1), kB}, {kP}});
  }
  for (auto& r : rows) r.inputs.resize(in.size());
  return rows;
}
std::vector<SbpRow> sbp_input_grad(Types, const Attrs& attrs) {
  std::vector<SbpRow> rows = {
      {{Sbp::split(0), kB}, {Sbp::split(0)}}, {{kB, kB}, {kB}}, {{kP, kB}, {kP}}, {{kB, kP}, {kP}}};
  if (attr<int64_t>(attrs, 4) != 1) return rows;
  rows.push_back({{Sbp::split(1), Sbp::split(0)}, {kP}});
  rows.push_back({{kB, Sbp::split(1)}, {Sbp::split(1)}});
  return rows;
}
std::vector<SbpRow> sbp_weight_grad(Types, const Attrs& attrs) {
  std::vector<SbpRow> rows = {
      {{Sbp::split(0), Sbp::split(0)}, {kP}}, {{kB, kB}, {kB}}, {{kP, kB}, {kP}}, {{kB, kP}, {kP}}};
  if (attr<int64_t>(attrs, 4) != 1) return rows;
  rows.push_back({{Sbp::split(1), kB}, {Sbp::split(0)}});
  rows.push_back({{kB, Sbp::split(1)}, {Sbp::split(1)}});
  return rows;
}

// `y` and `w`: the types of the convolution's output and weight, wherever they stand among the operands.
Cost conv_cost(const Shape& y, const Shape& w, Types in, Types out) {
  const double per_output = w[0] == 0 ? 0 : static_cast<double>(numel(w) / w[0]);
  return {2 * static_cast<double>(numel(y)) * per_output, operand_bytes(in, out)};
}

const Param kStride{.name = "stride", .default_value = Ints{}, .required = true};
const Param kPadding{.name = "padding", .default_value = Ints{}, .required = true};
const Param kDilation{.name = "dilation", .default_value = Ints{}, .required = true};
const Param kGroups{.name = "groups", .default_value = int64_t{1}};

const OpDef conv_def{
    .name = "conv",
    .doc = "Cross-correlation over 1 to 3 spatial dims, as torch.conv1d/2d/3d; lists have one entry per spatial dim.",
    .inputs = {"x", "weight", "bias?"},
    .params = {kStride, kPadding, kDilation, kGroups},
    .infer = infer_conv,
    .grad = grad_conv,
    .decompose = decompose_conv,
    .sbp = sbp_conv,
    .cost = [](Types in, Types out, const Attrs&) { return conv_cost(out[0].shape, in[1].shape, in, out); },
    .precision = OpDef::Precision::kConv,
    .samples = {
        {{{{2, 3, 6, 5}}, {{4, 3, 3, 3}}, {{4}}}, {Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, int64_t{1}}},
        {{{{2, 4, 7, 7}}, {{6, 2, 3, 2}}, {.shape = {}, .absent = true}},
         {Ints{2, 1}, Ints{0, 1}, Ints{1, 2}, int64_t{2}}},
        {{{{2, 4, 5, 5}}, {{4, 1, 3, 3}}, {{4}}}, {Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, int64_t{4}}},
        {{{{2, 3, 9}}, {{4, 3, 3}}, {{4}}}, {Ints{2}, Ints{1}, Ints{2}, int64_t{1}}},
        {{{{1, 2, 4, 4, 3}}, {{3, 2, 2, 2, 2}}, {{3}}}, {Ints{1, 2, 1}, Ints{0, 1, 1}, Ints{1, 1, 1}, int64_t{1}}},
        {{{{3, 1, 8, 8}}, {{5, 1, 3, 3}}, {.shape = {}, .absent = true}},
         {Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, int64_t{1}}},
        {{{{0, 3, 4, 4}}, {{4, 3, 1, 1}}, {{4}}}, {Ints{1, 1}, Ints{0, 0}, Ints{1, 1}, int64_t{1}}},
    }};

const OpDef conv_input_grad_def{
    .name = "conv_input_grad",
    .doc = "Gradient of conv with respect to its input of shape `input_shape`; also the transposed convolution.",
    .inputs = {"grad", "weight"},
    .params =
        {{.name = "input_shape", .default_value = Ints{}, .required = true}, kStride, kPadding, kDilation, kGroups},
    .infer = infer_input_grad,
    .grad = grad_input_grad,
    .decompose = decompose_input_grad,
    .sbp = sbp_input_grad,
    .localize = localize_shape,
    .cost = [](Types in, Types out, const Attrs&) { return conv_cost(in[0].shape, in[1].shape, in, out); },
    .precision = OpDef::Precision::kConv,
    .samples = {
        {{{{2, 4, 6, 5}}, {{4, 3, 3, 3}}}, {Ints{2, 3, 6, 5}, Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, int64_t{1}}},
        {{{{2, 6, 3, 7}}, {{6, 2, 3, 2}}}, {Ints{2, 4, 7, 7}, Ints{2, 1}, Ints{0, 1}, Ints{1, 2}, int64_t{2}}},
        {{{{2, 4, 4}}, {{4, 3, 3}}}, {Ints{2, 3, 9}, Ints{2}, Ints{1}, Ints{2}, int64_t{1}}},
    }};

const OpDef conv_weight_grad_def{
    .name = "conv_weight_grad",
    .doc = "Gradient of conv with respect to its weight of shape `weight_shape`.",
    .inputs = {"grad", "x"},
    .params =
        {{.name = "weight_shape", .default_value = Ints{}, .required = true}, kStride, kPadding, kDilation, kGroups},
    .infer = infer_weight_grad,
    .grad = grad_weight_grad,
    .decompose = decompose_weight_grad,
    .sbp = sbp_weight_grad,
    .localize = localize_shape,
    .cost = [](Types in, Types out, const Attrs&) { return conv_cost(in[0].shape, out[0].shape, in, out); },
    .precision = OpDef::Precision::kConv,
    .samples = {
        {{{{2, 4, 6, 5}}, {{2, 3, 6, 5}}}, {Ints{4, 3, 3, 3}, Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, int64_t{1}}},
        {{{{2, 6, 3, 7}}, {{2, 4, 7, 7}}}, {Ints{6, 2, 3, 2}, Ints{2, 1}, Ints{0, 1}, Ints{1, 2}, int64_t{2}}},
        {{{{2, 4, 4}}, {{2, 3, 9}}}, {Ints{4, 3, 3}, Ints{2}, Ints{1}, Ints{2}, int64_t{1}}},
    }};

// A rank that cannot be right is refused by the op itself, which names both shapes.
Attrs attrs_of(const ConvOptions& o, int rank, const char* where) {
  const int dims = std::max(rank - 2, 0);
  return {per_dim(o.stride, dims, 1, where, "stride"), per_dim(o.padding, dims, 0, where, "padding"),
          per_dim(o.dilation, dims, 1, where, "dilation"), o.groups};
}

Value with_bias(const Value& y, const Value& bias) {
  if (!bias.defined()) return y;
  Ints shape(y.rank(), 1);
  shape[1] = y.shape()[1];
  return add(y, reshape(bias, shape));
}

// For complex numbers it joins the four products of their parts: f is bilinear.
template <class F>
Value of_parts(const char* where, const Value& a, const Value& b, F f) {
  check_same_dtype(std::vector<TensorType>{a.type(), b.type()}, where);
  const Value ar = real_part(a), ai = imaginary_part(a), br = real_part(b), bi = imaginary_part(b);
  return complex(sub(f(ar, br), f(ai, bi)), add(f(ar, bi), f(ai, br)));
}

}  // namespace

Value conv(const Value& x, const Value& weight, const Value& bias, const ConvOptions& options) {
  const int dims = weight.rank() - 2;
  if (dims >= 1 && x.rank() == dims + 1) return squeeze(conv(unsqueeze(x, 0), weight, bias, options), Ints{0});
  if (is_complex(x.dtype())) {
    const Value y =
        of_parts("conv", x, weight, [&](const Value& a, const Value& b) { return conv(a, b, {}, options); });
    return with_bias(y, bias);
  }
  return call1(conv_def, {x, weight, bias}, attrs_of(options, weight.rank(), "conv"));
}

Value conv_input_grad(const Value& grad, const Value& weight, const Ints& input_shape, const ConvOptions& options) {
  if (is_complex(grad.dtype()))
    return of_parts("conv_input_grad", grad, weight,
                    [&](const Value& a, const Value& b) { return conv_input_grad(a, b, input_shape, options); });
  Attrs attrs = attrs_of(options, weight.rank(), "conv_input_grad");
  attrs.insert(attrs.begin(), input_shape);
  return call1(conv_input_grad_def, {grad, weight}, attrs);
}

Value conv_weight_grad(const Value& grad, const Value& x, const Ints& weight_shape, const ConvOptions& options) {
  if (is_complex(grad.dtype()))
    return of_parts("conv_weight_grad", grad, x,
                    [&](const Value& a, const Value& b) { return conv_weight_grad(a, b, weight_shape, options); });
  Attrs attrs = attrs_of(options, x.rank(), "conv_weight_grad");
  attrs.insert(attrs.begin(), weight_shape);
  return call1(conv_weight_grad_def, {grad, x}, attrs);
}

Value conv_transpose(const Value& x, const Value& weight, const Value& bias, const ConvTransposeOptions& o) {
  const char* where = "conv_transpose";
  const int dims = weight.rank() - 2;
  SLUICE_CHECK_KIND(kRuntime, dims >= 1 && dims <= 3,
                    "{}: weight has the wrong rank: {}; it must be (in, out/groups, 1 to 3 kernel dims)", where,
                    weight.shape().str());
  if (x.rank() == dims + 1) return squeeze(conv_transpose(unsqueeze(x, 0), weight, bias, o), Ints{0});
  SLUICE_CHECK_KIND(kRuntime, x.rank() == dims + 2 && x.shape()[1] == weight.shape()[0],
                    "{}: channels differ: input is {}, weight is {}; input.shape[1] must equal weight.shape[0]", where,
                    x.shape().str(), weight.shape().str());
  const Ints stride = per_dim(o.stride, dims, 1, where, "stride"),
             padding = per_dim(o.padding, dims, 0, where, "padding");
  const Ints extra = per_dim(o.output_padding, dims, 0, where, "output_padding");
  const Ints dilation = per_dim(o.dilation, dims, 1, where, "dilation");
  check_per_dim(stride, dims, 1, where, "stride");
  Ints out = {x.shape()[0], checked_dim(Wide{weight.shape()[1]} * o.groups, where)};
  Ints zeros(x.rank(), 0);  // elements that reach what output_padding adds beyond a stride
  for (int d = 0; d < dims; ++d) {
    SLUICE_CHECK_KIND(kRuntime, extra[d] >= 0 && (extra[d] < stride[d] || extra[d] < dilation[d]),
                      "{}: output_padding is out of range: {}; it must be smaller than stride {} or dilation {}", where,
                      extra[d], stride[d], dilation[d]);
    const Wide size = Wide{x.shape()[2 + d] - 1} * stride[d] - 2 * Wide{padding[d]} +
                      Wide{dilation[d]} * (weight.shape()[2 + d] - 1) + extra[d] + 1;
    SLUICE_CHECK_KIND(kRuntime, size >= 0 || x.shape()[2 + d] == 0,
                      "{}: Output size is too small: {} along dim {} of an input of {}", where,
                      static_cast<int64_t>(size), 2 + d, x.shape().str());
    out.push_back(checked_dim(size, where));
    zeros[2 + d] = extra[d] / stride[d];
  }
  const Ints none(x.rank(), 0);
  const Value y =
      conv_input_grad(zeros == none ? x : pad(x, none, zeros), weight, out, {stride, padding, dilation, o.groups});
  return with_bias(y, bias);
}

const OpDef& conv_op() { return conv_def; }
std::span<const OpDef* const> convolution_ops() {
  static const OpDef* const defs[] = {&conv_def, &conv_input_grad_def, &conv_weight_grad_def};
  return defs;
}

}  // namespace sluice::ops
