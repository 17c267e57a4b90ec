#pragma once
// Kernel calls of odd geometries, drawn by number: the same number, the same call.
#include <string>
#include <vector>

#include "graph/op_def.h"
#include "kernels/network_kernels.h"

namespace sluice::test {

class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next(uint64_t below) {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return (state_ * 0x2545f4914f6cdd1du >> 33) % below;
  }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[next(choices.size())];
  }
  int64_t from_to(int64_t low, int64_t high) { return low + static_cast<int64_t>(next(high - low + 1)); }
  bool one_in(uint64_t n) { return next(n) == 0; }

 private:
  uint64_t state_;
};

inline bool in_order(const TensorSpec& s) { return s.strides == contiguous_strides(s.shape); }

struct GuardCase {
  plan::KernelQuery query;
  std::vector<bool> present = {};  // per input
  std::string text() const {
    std::string text = query.op;
    const auto add = [&](const TensorSpec& s) {
      text += s.shape.rank() == 0 ? " -" : " " + TensorType{s.dtype, s.shape}.str();
      if (s.shape.rank() > 0 && !in_order(s)) text += "/" + s.strides.str();
    };
    for (const TensorSpec& s : query.inputs) add(s);
    text += " ->";
    for (const TensorSpec& s : query.outputs) add(s);
    for (const auto& [name, value] : query.attrs)
      if (const auto* ints = std::get_if<Ints>(&value)) text += fmt::format(" {}={}", name, fmt::join(*ints, ","));
    return text + fmt::format(" {} threads", query.cores);
  }
};

namespace guard_cases {

// Absent inputs have rank 0 here; every op of the sweep has tensors of rank 1 at least.
inline GuardCase made(const std::string& op, std::vector<TensorSpec> inputs, Attrs attrs, Draws& draw,
                      bool outputs_last) {
  const OpDef& def = builtin_ops().get(op);
  while (inputs.size() < def.inputs.size()) inputs.emplace_back();
  std::vector<TensorType> types;
  const std::unique_ptr<bool[]> present(new bool[inputs.size()]);
  for (size_t i = 0; i < inputs.size(); ++i) {
    types.push_back({inputs[i].dtype, inputs[i].shape});
    present[i] = inputs[i].shape.rank() > 0;
  }
  attrs = validate_attrs(def, std::move(attrs));
  GuardCase c;
  c.query.op = op;
  c.query.attrs = name_attrs(def, attrs);
  for (const TensorType& t : infer_types(def, types, {present.get(), inputs.size()}, attrs))
    c.query.outputs.push_back(outputs_last && t.shape.rank() >= 3 ? channels_last(t.shape, t.dtype)
                                                                  : dense(t.shape, t.dtype));
  c.present.assign(present.get(), present.get() + inputs.size());
  c.query.inputs = std::move(inputs);
  c.query.cores = static_cast<int>(draw.from_to(1, 2));
  return c;
}

inline DType float_type(Draws& draw) {
  return draw.of({DType::kFloat32, DType::kFloat32, DType::kFloat32, DType::kBFloat16, DType::kBFloat16,
                  draw.of({DType::kFloat16, DType::kFloat64})});
}
inline int64_t channels(Draws& draw) {
  return draw.one_in(3) ? draw.of<int64_t>({16, 24, 31, 32, 33, 48, 64, 65}) : draw.from_to(1, 20);
}
inline TensorSpec lying(Shape shape, DType dtype, Draws& draw) {
  return draw.one_in(3) ? dense(std::move(shape), dtype) : channels_last(std::move(shape), dtype);
}

struct ConvShapes {
  Shape x, w, y;
  Ints stride, padding, dilation;
  int64_t groups = 1;
};
inline ConvShapes conv_shapes(Draws& draw) {
  ConvShapes c;
  const int dims = draw.of({1, 2, 2, 2, 2, 3});
  const bool depthwise = draw.one_in(6);
  c.groups = depthwise ? channels(draw) : draw.of<int64_t>({1, 1, 1, 1, 2, 3});
  const int64_t ic = depthwise ? 1 : channels(draw), oc = depthwise ? draw.of<int64_t>({1, 1, 2}) : channels(draw);
  const int64_t batch = draw.of<int64_t>({1, 1, 1, 2, 3});
  c.x = {batch, ic * c.groups}, c.w = {oc * c.groups, ic}, c.y = {batch, oc * c.groups};
  const bool points = draw.one_in(3), square = draw.one_in(2);
  const int64_t most = dims == 1 ? 400 : dims == 2 ? (ic * oc > 512 ? 12 : 40) : 7;
  int64_t results = 0, step = 0, rest = 0;
  for (int d = 0; d < dims; ++d) {
    const int64_t window = points ? 1 : draw.of<int64_t>({1, 2, 3, 3, 3, 5, 7});
    const int64_t dilation = draw.of<int64_t>({1, 1, 1, 2});
    const int64_t usual = std::min(draw.of<int64_t>({0, 1, 1, 2}), window - 1);
    const int64_t padding = draw.one_in(8) ? draw.from_to(0, 4) : points ? 0 : usual;
    if (d == 0 || !square) {
      results = draw.one_in(6) ? 1 : draw.from_to(1, most), step = draw.of<int64_t>({1, 1, 2, 2, 3});
      rest = draw.one_in(2) ? step - 1 : draw.from_to(0, step - 1);  // not read by any window
    }
    const int64_t size = (results - 1) * step + dilation * (window - 1) + 1 - 2 * padding + rest;
    c.x.push_back(std::max<int64_t>(size, 1)), c.w.push_back(window);
    c.y.push_back((c.x[2 + d] + 2 * padding - dilation * (window - 1) - 1) / step + 1);
    c.stride.push_back(step), c.padding.push_back(padding), c.dilation.push_back(dilation);
  }
  return c;
}
inline bool possible(const ConvShapes& c) {
  return std::all_of(c.y.begin(), c.y.end(), [](int64_t n) { return n > 0; });
}
inline ConvShapes some_conv(Draws& draw) {
  ConvShapes c = conv_shapes(draw);
  while (!possible(c)) c = conv_shapes(draw);
  return c;
}

inline GuardCase conv(const std::string& op, Draws& draw) {
  const ConvShapes c = some_conv(draw);
  const DType t = float_type(draw);
  const TensorSpec x = lying(c.x, t, draw), y = lying(c.y, t, draw), w = dense(c.w, t);
  const TensorSpec row = dense({c.w[0]}, t);
  const auto maybe = [&](const TensorSpec& s) { return draw.one_in(2) ? s : TensorSpec{}; };
  const bool last = !in_order(y);
  if (op == "conv") return made(op, {x, w, maybe(row)}, {c.stride, c.padding, c.dilation, c.groups}, draw, last);
  if (op == "conv_input_grad")
    return made(op, {y, w}, {c.x.vec(), c.stride, c.padding, c.dilation, c.groups}, draw, !in_order(x));
  if (op == "conv_weight_grad")
    return made(op, {y, x}, {c.w.vec(), c.stride, c.padding, c.dilation, c.groups}, draw, false);
  const bool norm = draw.one_in(2);
  return made(op,
              {x, w, maybe(row), norm ? row : TensorSpec{}, norm ? row : TensorSpec{}, norm ? maybe(row) : TensorSpec{},
               norm ? maybe(row) : TensorSpec{}, maybe(y)},
              {1e-5, std::string(draw.one_in(2) ? "relu" : "none"), c.stride, c.padding, c.dilation, c.groups}, draw,
              last);
}

inline GuardCase int8_conv(const std::string& op, Draws& draw) {
  const ConvShapes c = some_conv(draw);
  const DType t = draw.of({DType::kUInt8, DType::kInt8});
  const TensorSpec x = lying(c.x, t, draw), w = dense(c.w, DType::kInt8), row = dense({c.w[0]});
  const TensorSpec shift = draw.one_in(2) ? row : TensorSpec{};
  const TensorSpec zero = draw.one_in(2) ? dense({1}, DType::kInt32) : TensorSpec{};
  Attr result = t;
  if (draw.one_in(2)) result = NoAttr();
  return made(op, {x, w, row, shift, zero},
              {std::string(draw.one_in(2) ? "relu" : "none"), result, c.stride, c.padding, c.dilation, c.groups}, draw,
              !in_order(x));
}

inline int64_t length(Draws& draw) {
  return draw.one_in(4) ? draw.of<int64_t>({16, 32, 48, 63, 64, 65, 96, 128, 129, 200}) : draw.from_to(1, 40);
}
// A matrix, or a batch of them, dense or with rows of a wider one.
inline TensorSpec matrix(Shape shape, DType t, Draws& draw) {
  TensorSpec spec = dense(std::move(shape), t);
  const int r = spec.shape.rank();
  if (!draw.one_in(3)) return spec;
  spec.strides[r - 2] += draw.from_to(1, 5);
  for (int i = r - 3; i >= 0; --i) spec.strides[i] = spec.strides[i + 1] * spec.shape[i + 1];
  return spec;
}

inline GuardCase product(const std::string& op, Draws& draw) {
  const DType t = float_type(draw);
  const int64_t m = length(draw), n = length(draw), k = length(draw), b = draw.from_to(1, 3);
  const auto in_batch = [&](int64_t rows, int64_t cols, bool batch) {
    return batch ? Shape{b, rows, cols} : Shape{rows, cols};
  };
  if (op == "linear") {
    return made(op, {matrix({m, k}, t, draw), dense({n, k}, t), draw.one_in(2) ? dense({n}, t) : TensorSpec{}},
                {std::string(draw.of({"none", "relu", "gelu", "tanh", "sigmoid", "silu"}))}, draw, false);
  }
  if (op == "int8_linear") {
    return made(op,
                {dense({m, k}, draw.of({DType::kUInt8, DType::kInt8})), dense({n, k}, DType::kInt8), dense({n}),
                 draw.one_in(2) ? dense({n}) : TensorSpec{}},
                {std::string("none"), DType::kUInt8}, draw, false);
  }
  const bool batch = draw.one_in(2), ta = draw.one_in(3), tb = draw.one_in(3);
  const TensorSpec a = matrix(ta ? in_batch(k, m, batch) : in_batch(m, k, batch), t, draw),
                   w = matrix(tb ? in_batch(n, k, batch) : in_batch(k, n, batch), t, draw);
  if (op == "matmul") return made(op, {a, w}, {ta, tb}, draw, false);
  return made(op, {a, w, dense(in_batch(m, n, batch), t), draw.one_in(2) ? dense({n}, t) : TensorSpec{}}, {ta, tb},
              draw, false);
}

inline GuardCase pool(const std::string& op, Draws& draw) {
  ConvShapes c = some_conv(draw);
  c.y[1] = c.x[1];
  const DType t = float_type(draw);
  Ints window;
  for (int d = 2; d < c.w.rank(); ++d) {
    window.push_back(c.w[d]);
    c.padding[d - 2] = std::min(c.padding[d - 2], c.w[d] / 2);
  }
  const bool average = op.starts_with("avg"), up = draw.one_in(4), with_padding = draw.one_in(2);
  for (int d = 2; d < c.w.rank(); ++d) {
    const int64_t dilation = average ? 1 : c.dilation[d - 2];
    c.x[d] = std::max(c.x[d], dilation * (c.w[d] - 1) + 1);
  }
  const TensorSpec x = lying(c.x, t, draw);
  const Attrs attrs = average ? Attrs{window, c.stride, c.padding, up, with_padding, int64_t{0}}
                              : Attrs{window, c.stride, c.padding, c.dilation, up};
  const bool last = !in_order(x);
  if (!op.ends_with("_backward")) return made(op, {x}, attrs, draw, last);
  const GuardCase forward = made(average ? "avg_pool" : "max_pool", {x}, attrs, draw, last);
  if (!average) return made(op, forward.query.outputs, {c.x.vec()}, draw, last);
  return made(op, forward.query.outputs, {c.x.vec(), window, c.stride, c.padding, up, with_padding, int64_t{0}}, draw,
              last);
}

inline GuardCase batch_norm(const std::string& op, Draws& draw) {
  const ConvShapes c = some_conv(draw);
  const DType t = float_type(draw);
  const TensorSpec x = lying(c.x, t, draw), row = dense({c.x[1]}, t);
  const TensorSpec weight = draw.one_in(2) ? row : TensorSpec{}, bias = draw.one_in(2) ? row : TensorSpec{};
  const bool last = !in_order(x);
  if (op == "batch_norm_train") return made(op, {x, weight, bias}, {1e-5}, draw, last);
  if (op == "batch_norm_infer") return made(op, {x, row, row, weight, bias}, {1e-5}, draw, last);
  return made(op, {x, x, row, row, weight}, {1e-5}, draw, last);
}

// A case of rows of a matrix, or of groups of channels; softmax over any axis.
inline GuardCase rows(const std::string& op, Draws& draw) {
  const DType t = float_type(draw);
  const bool backward = op.ends_with("_backward");
  if (op.starts_with("group_norm")) {
    const int64_t groups = draw.from_to(1, 5);
    const TensorSpec x = lying({draw.from_to(1, 3), groups * draw.from_to(1, 9), length(draw), 3}, t, draw);
    const TensorSpec weight = draw.one_in(2) ? dense({x.shape[1]}, t) : TensorSpec{};
    const bool last = !in_order(x);
    return backward ? made(op, {x, x, weight}, {groups, 1e-5}, draw, last)
                    : made(op, {x, weight, weight}, {groups, 1e-5}, draw, last);
  }
  const TensorSpec x = dense({draw.from_to(1, 5), length(draw), length(draw)}, t);
  if (op.find("softmax") != std::string::npos)
    return backward ? made(op, {x, x}, {draw.from_to(0, 2)}, draw, false)
                    : made(op, {x}, {draw.from_to(0, 2)}, draw, false);
  const Ints norm = {x.shape[2]};
  const TensorSpec weight = draw.one_in(2) ? dense({x.shape[2]}, t) : TensorSpec{};
  if (backward) return made(op, {x, x, weight}, {norm, 1e-5}, draw, false);
  return op == "layer_norm" ? made(op, {x, weight, weight}, {norm, 1e-5}, draw, false)
                            : made(op, {x, weight}, {norm, 1e-5}, draw, false);
}

// From any strides to any other: axes permuted, with room between them, or repeated.
inline GuardCase copy(const std::string& op, Draws& draw) {
  const auto strided = [&](const Shape& shape, DType t, bool repeats) {
    TensorSpec spec = dense(shape, t);
    std::vector<int> axes;
    for (int i = 0; i < shape.rank(); ++i) axes.insert(axes.begin() + static_cast<long>(draw.next(axes.size() + 1)), i);
    int64_t step = draw.of<int64_t>({1, 1, 1, 2});
    for (const int axis : axes) {
      spec.strides[axis] = repeats && draw.one_in(6) ? 0 : step;
      step *= shape[axis] + (draw.one_in(5) ? 1 : 0);
    }
    return spec;
  };
  const Shape shape = draw.one_in(2) ? Shape{draw.from_to(1, 3), channels(draw), length(draw), draw.from_to(1, 9)}
                                     : Shape{length(draw), length(draw)};
  const DType t = draw.of({DType::kFloat32, DType::kBFloat16, DType::kUInt8, DType::kInt64, DType::kBool});
  GuardCase c = made(op, {strided(shape, t, true)}, {}, draw, false);
  c.query.outputs[0] = strided(shape, t, false);
  return c;
}

}  // namespace guard_cases

// Families of ops that are drawn alike.
struct GuardFamily {
  std::vector<const char*> ops;
  GuardCase (*draw)(const std::string& op, Draws& draw);
};
inline const std::vector<GuardFamily>& guard_families() {
  namespace g = guard_cases;
  static const std::vector<GuardFamily> families = {
      {{"conv", "conv_input_grad", "conv_weight_grad", "fused_conv"}, g::conv},
      {{"int8_conv"}, g::int8_conv},
      {{"matmul", "linear", "fused_matmul", "int8_linear"}, g::product},
      {{"max_pool", "max_pool_values", "max_pool_backward", "avg_pool", "avg_pool_backward"}, g::pool},
      {{"batch_norm_train", "batch_norm_infer", "batch_norm_backward"}, g::batch_norm},
      {{"layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward", "group_norm", "group_norm_backward",
        "softmax", "softmax_backward", "log_softmax", "log_softmax_backward"},
       g::rows},
      {{"copy"}, g::copy}};
  return families;
}

// The samples of all ops that the table has kernels of, whatever the family.
inline std::vector<GuardCase> guard_samples(const KernelTable& table) {
  std::vector<GuardCase> cases;
  for (const OpDef* const op : builtin_ops().all()) {
    if (table.find(op->name, DeviceKind::kCpu) == nullptr) continue;
    for (const Sample& sample : op->samples) {
      GuardCase c;
      std::vector<TensorType> types;
      for (const SampleInput& in : sample.inputs) {
        types.push_back(in.absent ? TensorType{} : TensorType{in.dtype, in.shape});
        c.present.push_back(!in.absent);
      }
      while (!op->variadic() && types.size() < op->inputs.size()) types.emplace_back(), c.present.push_back(false);
      for (const TensorType& t : types) c.query.inputs.push_back(TensorSpec::contiguous(t));
      const std::unique_ptr<bool[]> present(new bool[types.size() + 1]);
      std::copy(c.present.begin(), c.present.end(), present.get());
      const Attrs attrs = validate_attrs(*op, sample.attrs);
      c.query.op = op->name;
      c.query.attrs = name_attrs(*op, attrs);
      for (const TensorType& t : infer_types(*op, types, {present.get(), types.size()}, attrs))
        c.query.outputs.push_back(TensorSpec::contiguous(t));
      c.query.cores = 1;
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

// Case `number`: the ops by turns, the weightiest twice.
inline GuardCase guard_case(uint64_t number) {
  static const std::vector<std::pair<const char*, const GuardFamily*>> turns = [] {
    std::vector<std::pair<const char*, const GuardFamily*>> all;
    for (const GuardFamily& family : guard_families())
      for (const char* op : family.ops) all.emplace_back(op, &family);
    for (const char* op : guard_families()[0].ops)
      for (int i = 0; i < 3; ++i) all.emplace_back(op, &guard_families()[0]);
    return all;
  }();
  Draws draw(number + 1);
  for (int i = 0; i < 4; ++i) draw.next(2);
  const auto& [op, family] = turns[number % turns.size()];
  for (int tries = 0; tries < 100; ++tries) {
    try {
      return family->draw(op, draw);
    } catch (const Error&) {  // one that the op refuses, as training on one value per channel
    }
  }
  return family->draw(op, draw);
}

}  // namespace sluice::test
