// Entries of products, convolutions, pools and normalisations.
#include <numeric>

#include "base/error.h"
#include "onnx/export/emission.h"

namespace sluice::onnx::exporting {
namespace {

using Names = std::vector<std::string>;

Ints spread(Ints values, size_t dims, int64_t otherwise) {
  if (values.empty()) values.assign(dims, otherwise);
  if (values.size() == 1) values.assign(dims, values[0]);
  return values;
}
Ints twice(const Ints& padding) {
  Ints pads = padding;
  pads.insert(pads.end(), padding.begin(), padding.end());
  return pads;
}

Exporter::Attributes conv_attributes(const Emission& e, const Shape& weight) {
  const auto dims = static_cast<size_t>(weight.rank() - 2);
  return {{"kernel_shape", Ints(weight.begin() + 2, weight.end())},
          {"strides", spread(e.is("stride"), dims, 1)},
          {"pads", twice(spread(e.is("padding"), dims, 0))},
          {"dilations", spread(e.is("dilation"), dims, 1)},
          {"group", e.i("groups")}};
}

// The adjoint of a convolution: what its strides pass over is added behind.
Names transposed(const Emission& e) {
  const Shape& weight = e.type(1).shape;
  const auto dims = static_cast<size_t>(weight.rank() - 2);
  const Ints stride = spread(e.is("stride"), dims, 1), padding = spread(e.is("padding"), dims, 0),
             dilation = spread(e.is("dilation"), dims, 1);
  const Numbers from = e.shape_in(0), to = e.shape_out();
  Ints more;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t kernel = dilation[d] * (weight[static_cast<int>(d) + 2] - 1) + 1;
    Number extra = to[d + 2];
    for (size_t t = 0; t < extra.size(); ++t) extra[t] -= (from[d + 2][t] - 1) * stride[d] - 2 * padding[d] + kernel;
    if (!is_fixed(extra)) e.refuse("a size that its stride passes over varies with a dim");
    more.push_back(extra.front());
  }
  Exporter::Attributes attributes = conv_attributes(e, weight);
  attributes.emplace_back("output_padding", more);
  return {e.to.add1("ConvTranspose", e.inputs, attributes)};
}

std::string matrix_transposed(const Emission& e, const std::string& x, int rank) {
  Ints perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return e.to.add1("Transpose", {x}, {{"perm", perm}});
}

Names matmul(const Emission& e) {
  const std::string a = e.b("transpose_a") ? matrix_transposed(e, e.inputs[0], e.rank(0)) : e.inputs[0];
  const std::string b = e.b("transpose_b") ? matrix_transposed(e, e.inputs[1], e.rank(1)) : e.inputs[1];
  return {e.to.add1("MatMul", {a, b})};
}

Names linear(const Emission& e) {
  if (e.s("activation") != "none" || e.rank(1) != 2) return {};  // decomposed
  if (e.rank(0) == 2) return {e.to.add1("Gemm", e.inputs, {{"transB", int64_t{1}}})};
  const std::string y = e.to.add1("MatMul", {e.inputs[0], matrix_transposed(e, e.inputs[1], 2)});
  return {e.has(2) ? e.to.add1("Add", {y, e.inputs[2]}) : y};
}

Exporter::Attributes pool_attributes(const Emission& e) {
  const Ints kernel = e.is("kernel_size");
  return {{"kernel_shape", kernel},
          {"strides", spread(e.is("stride"), kernel.size(), 1)},
          {"pads", twice(spread(e.is("padding"), kernel.size(), 0))},
          {"ceil_mode", e.b("ceil_mode") ? int64_t{1} : int64_t{0}}};
}

Names max_pool(const Emission& e) {
  const Ints kernel = e.is("kernel_size");
  if (e.rank() != static_cast<int>(kernel.size()) + 2)
    e.refuse("a pool of {}; must have a batch dim", e.type().shape.str());
  Exporter::Attributes attributes = pool_attributes(e);
  if (e.op.find_param("dilation") >= 0)
    attributes.emplace_back("dilations", spread(e.is("dilation"), kernel.size(), 1));
  const bool index = e.used.size() > 1 && e.used[1];
  Names made = e.to.add("MaxPool", e.inputs, attributes, index ? 2 : 1);
  if (index) {  // ONNX counts elements of all planes
    Number plane(e.to.traces(), 1);
    const Numbers shape = e.shape_in(0);
    for (size_t d = 2; d < shape.size(); ++d)
      for (size_t t = 0; t < plane.size(); ++t) plane[t] *= shape[d][t];
    made[1] = e.to.add1("Mod", {made[1], e.to.ints({plane})});
  }
  return made;
}

Names avg_pool(const Emission& e) {
  const int64_t divisor = e.i("divisor_override");
  if (divisor != 0 && e.b("ceil_mode")) e.refuse("a divisor of its own beside windows that end outside");
  if (e.rank() != static_cast<int>(e.is("kernel_size").size()) + 2)
    e.refuse("a pool of {}; must have a batch dim", e.type().shape.str());
  Exporter::Attributes attributes = pool_attributes(e);
  attributes.emplace_back("count_include_pad", e.b("count_include_pad") || divisor != 0 ? int64_t{1} : int64_t{0});
  if (e.b("ceil_mode")) e.to.need(19);  // from which on what lies beyond the padding does not count
  const std::string mean = e.to.add1("AveragePool", e.inputs, attributes);
  if (divisor == 0) return {mean};
  double elements = 1;
  for (const int64_t k : e.is("kernel_size")) elements *= static_cast<double>(k);
  return {e.to.add1("Mul", {mean, e.to.scalar(elements / static_cast<double>(divisor), e.result().dtype)})};
}

// One number for each channel where none is given.
std::string affine(const Emission& e, size_t i, const Shape& shape, double otherwise, DType dtype) {
  if (e.has(i)) return e.inputs[i];
  return e.to.constant(Tensor::full({dtype, shape}, otherwise));
}

Names layer_norm(const Emission& e) {
  for (size_t o = 1; o < e.used.size(); ++o)
    if (e.used[o]) return {};
  const Ints shape = e.is("normalized_shape");
  const std::string scale = affine(e, 1, Shape(shape), 1, e.type().dtype);
  return {e.to.add1("LayerNormalization", {e.inputs[0], scale, e.has(2) ? e.inputs[2] : ""},
                    {{"axis", -static_cast<int64_t>(shape.size())}, {"epsilon", e.f("eps")}})};
}

Names rms_norm(const Emission& e) {
  for (size_t o = 1; o < e.used.size(); ++o)
    if (e.used[o]) return {};
  if (e.to.opset() < 23) return {};
  const Ints shape = e.is("normalized_shape");
  return {e.to.add1("RMSNormalization", {e.inputs[0], affine(e, 1, Shape(shape), 1, e.type().dtype)},
                    {{"axis", -static_cast<int64_t>(shape.size())}, {"epsilon", e.f("eps")}})};
}

Names batch_norm(const Emission& e) {  // x, mean, var, weight?, bias?
  const Shape channels{e.type().shape[1]};
  const DType dtype = e.type(1).dtype;
  return {e.to.add1(
      "BatchNormalization",
      {e.inputs[0], affine(e, 3, channels, 1, dtype), affine(e, 4, channels, 0, dtype), e.inputs[1], e.inputs[2]},
      {{"epsilon", e.f("eps")}})};
}

Names group_norm(const Emission& e) {
  for (size_t o = 1; o < e.used.size(); ++o)
    if (e.used[o]) return {};
  if (e.to.opset() < 21) return {};
  const Shape channels{e.type().shape[1]};
  return {e.to.add1("GroupNormalization",
                    {e.inputs[0], affine(e, 1, channels, 1, e.type().dtype), affine(e, 2, channels, 0, e.type().dtype)},
                    {{"num_groups", e.i("num_groups")}, {"epsilon", e.f("eps")}})};
}

Emit along(const char* op) {
  return [=](const Emission& e) -> Names {
    if (e.rank() == 0) return {};
    return {e.to.add1(op, e.inputs, {{"axis", e.i("dim")}})};
  };
}

Names grid_sample(const Emission& e) {
  if (e.rank() != 4) e.to.need(20);
  const std::string mode = e.s("mode");
  const bool named = e.to.opset() >= 20;
  const std::string word = mode == "bilinear"  ? (named ? "linear" : mode)
                           : mode == "bicubic" ? (named ? "cubic" : mode)
                                               : mode;
  return {e.to.add1("GridSample", e.inputs,
                    {{"mode", word},
                     {"padding_mode", e.s("padding_mode")},
                     {"align_corners", e.b("align_corners") ? int64_t{1} : int64_t{0}}})};
}

// From the opset on that has it; heads are as many.
Names attention(const Emission& e) {
  const bool plain = e.rank() == 4 && e.type(0).shape[1] == e.type(1).shape[1] && e.f("dropout_p") == 0;
  if (e.to.opset() < 23 || !plain || e.used[1]) return {};
  return {e.to.add1("Attention", {e.inputs[0], e.inputs[1], e.inputs[2], e.has(3) ? e.inputs[3] : ""},
                    {{"is_causal", e.b("is_causal") ? int64_t{1} : int64_t{0}}, {"scale", e.f("scale")}})};
}

// A scale of one element stands for all, as one without axes does in ONNX.
Names quantized(const char* op, const Emission& e) {
  Names inputs = e.inputs;
  for (size_t i = 1; i < inputs.size(); ++i)
    if (e.has(i) && numel(e.type(i).shape) == 1) inputs[i] = e.to.add1("Reshape", {inputs[i], e.to.ints({})});
  const DType dtype = std::string_view(op) == "QuantizeLinear" ? e.result().dtype : e.type().dtype;
  if (e.has(2) && e.type(2).dtype != dtype) inputs[2] = e.to.cast(inputs[2], dtype);
  if (!e.has(2)) {
    const Shape shape = numel(e.type(1).shape) == 1 ? Shape{} : e.type(1).shape;
    inputs.resize(3);
    inputs[2] = e.to.constant(Tensor::full({dtype, shape}, 0));
  }
  return {e.to.add1(op, inputs, {{"axis", e.i("axis")}})};
}

}  // namespace

void add_network_emits(Emits& all) {
  all["conv"] = [](const Emission& e) -> Names {
    return {e.to.add1("Conv", e.inputs, conv_attributes(e, e.type(1).shape))};
  };
  all["conv_input_grad"] = transposed;
  all["attention"] = attention;
  all["matmul"] = matmul;
  all["linear"] = linear;
  all["max_pool"] = max_pool;
  all["max_pool_values"] = max_pool;
  all["avg_pool"] = avg_pool;
  all["layer_norm"] = layer_norm;
  all["rms_norm"] = rms_norm;
  all["group_norm"] = group_norm;
  all["batch_norm_infer"] = batch_norm;
  all["softmax"] = along("Softmax");
  all["log_softmax"] = along("LogSoftmax");
  all["grid_sample"] = grid_sample;
  all["quantize"] = [](const Emission& e) { return quantized("QuantizeLinear", e); };
  all["dequantize"] = [](const Emission& e) { return quantized("DequantizeLinear", e); };
}

}  // namespace sluice::onnx::exporting
