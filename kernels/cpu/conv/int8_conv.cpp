// int8_conv and int8_linear: convolutions of 8-bit integers with sums in 32 bits, by oneDNN on processors that add such
// products without saturating in between (VNNI). Others have no kernel for them: there the ops are computed by what
// they are made of, in floats.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/conv/conv_loops.h"
#include "kernels/cpu/conv/requantize.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/onednn/library_defects.h"
#include "kernels/cpu/onednn/onednn_conv.h"
#include "kernels/guarded_kernel.h"
#include "plan/query.h"

namespace sluice::cpu {
namespace {

using onednn::Desc;
using plan::KernelQuery;
using plan::Layout;

// A call of either op as a convolution: of int8_linear by one tap, whose positions are the rows.
struct Int8Conv {
  enum Input { kX, kWeight, kScale, kShift, kZero, kResidual, kResidualScale };

  explicit Int8Conv(const KernelQuery& q) {
    operands = {q.inputs[kX], q.inputs[kWeight], q.outputs[0], {}, false};
    shift = has_operand(q.inputs, kShift);
    zero = has_operand(q.inputs, kZero);
    residual = has_operand(q.inputs, kResidual);
    residual_scale = residual && has_operand(q.inputs, kResidualScale);
    // A result that is rounded to uint8 has nothing below 0 anyway.
    relu = get_attr<std::string>(q.attrs, "activation") == "relu" && operands.y.dtype != DType::kUInt8;
    compute = q.inputs[kScale].dtype;
    if (residual) residual_spec = q.inputs[kResidual];
    channels = operands.w.shape[0];
    if (q.op == "int8_conv") {
      geometry = conv_geometry(q);
      return;
    }
    geometry = {{1}, {0}, {1}, 1};
    for (TensorSpec* spec : {&operands.x, &operands.y}) {
      const int64_t columns = spec->shape[spec->shape.rank() - 1];
      const Shape as_conv = {1, columns, columns == 0 ? 0 : numel(spec->shape) / columns};
      *spec = {spec->dtype, as_conv, channels_last_strides(as_conv)};
    }
    operands.w = TensorSpec::contiguous({DType::kInt8, {channels, operands.x.shape[1], 1}});
  }

  ConvOperands operands;
  ConvGeometry geometry;
  TensorSpec residual_spec;
  DType compute = DType::kFloat32;  // of scale, shift and float residuals
  int64_t channels = 0;
  bool shift = false, zero = false, residual = false, residual_scale = false, relu = false;
};

// oneDNN's: rows of coefficients, residual and activation are applied to the sums before they are written.
class Int8Kernel final : public PreparedKernel, public OfImplementation {
 public:
  Int8Kernel(const KernelQuery& q, const Int8Conv& conv, int threads) : conv_(conv) {
    const ConvOperands& o = conv.operands;
    const char* const op = q.op.c_str();
    const Shape w = weight_shape(o.w.shape, conv.geometry.groups);
    const int rank = o.y.shape.rank();
    const Desc x = activation_desc(o.x, true), y = activation_desc(o.y, true);
    Shape of_row = Shape::filled(rank, 1);
    const Desc one = onednn::desc(DType::kFloat32, of_row, channels_last_strides(of_row));
    of_row[1] = conv.channels;
    // If a result has one position, oneDNN wants a row to lie like the result.
    const Desc row = onednn::desc(DType::kFloat32, of_row, channels_last_strides(of_row));

    dnnl::post_ops post_ops;
    std::vector<onednn::Primitive::Arg> finish;
    const auto append = [&](dnnl::algorithm algorithm, const Desc& operand) {
      finish.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(post_ops.len()) | DNNL_ARG_SRC_1, operand});
      post_ops.append_binary(algorithm, operand);
    };
    append(dnnl::algorithm::binary_mul, row);
    if (conv.shift) append(dnnl::algorithm::binary_add, row);
    Desc residual;
    if (conv.residual) append(dnnl::algorithm::binary_add, residual = activation_desc(conv.residual_spec, true));
    if (conv.residual_scale) append(dnnl::algorithm::binary_mul, one);
    if (conv.relu) onednn::append_eltwise(post_ops, dnnl::algorithm::eltwise_relu);

    const auto pd = onednn::int8_conv_pd(x, onednn::any_desc(DType::kInt8, w), y, onednn_geometry(conv.geometry, o),
                                         post_ops, conv.zero);
    std::vector<onednn::Primitive::Arg> args = {
        {DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, y}};
    if (conv.zero) args.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, onednn::desc(DType::kInt32, {1}, {1})});
    args.insert(args.end(), finish.begin(), finish.end());
    primitive_ =
        std::make_unique<onednn::Primitive>(dnnl::convolution_forward(pd), args, pd.scratchpad_desc(), threads);

    Ports ports(threads);
    const auto given = [&](const TensorSpec& spec) { return activation_desc(spec, is_channels_last(spec, op)); };
    x_ = ports.input(given(o.x), x);
    w_ = ports.input(onednn::desc(o.w.dtype, w, contiguous_strides(w)), pd.weights_desc(), q, 1);
    y_ = ports.output(given(o.y), y);
    if (conv.residual) residual_ = ports.input(given(conv.residual_spec), residual);
    if (conv.residual_scale) rows_ = ports.add(2 * row_bytes());
    scratch_ = ports.scratch(primitive_->scratchpad_bytes());
    workspace_bytes_ = ports.bytes();
    packings_ = ports.take_packings();
    held_bytes_ = (1 + packings_.size()) * onednn::Primitive::kHeldBytes;
    for (const Port* port : {&x_, &w_, &y_, &residual_})
      held_bytes_ += port->reorder ? onednn::Primitive::kHeldBytes : 0;
  }

  std::string implementation() const override { return primitive_->implementation(); }

  void run(const KernelArgs& args) const override {
    void* const scratch = args.workspace ? at_offset(args.workspace, scratch_) : nullptr;
    const auto brought = [&](const Port& port, int input) {
      void* const inner = port.inner(args.inputs[input], args.workspace);
      if (port.reorder) port.reorder->run({args.inputs[input], inner, scratch});
      return inner;
    };
    std::array<const void*, 10> pointers = {brought(x_, Int8Conv::kX), brought(w_, Int8Conv::kWeight),
                                            y_.inner(args.outputs[0], args.workspace)};
    size_t count = 3;
    if (conv_.zero) pointers[count++] = args.inputs[Int8Conv::kZero];
    // The residual is added as it is and all is scaled then, so what is there before counts in its steps.
    const auto row = [&](int input, uint64_t at) {
      const auto* const given = static_cast<const float*>(args.inputs[input]);
      if (!conv_.residual_scale) return given;
      auto* const own = reinterpret_cast<float*>(at_offset(args.workspace, rows_ + at));
      const float step = *static_cast<const float*>(args.inputs[Int8Conv::kResidualScale]);
      for (int64_t i = 0; i < conv_.channels; ++i) own[i] = given[i] / step;
      return static_cast<const float*>(own);
    };
    pointers[count++] = row(Int8Conv::kScale, 0);
    if (conv_.shift) pointers[count++] = row(Int8Conv::kShift, row_bytes());
    if (conv_.residual) pointers[count++] = brought(residual_, Int8Conv::kResidual);
    if (conv_.residual_scale) pointers[count++] = args.inputs[Int8Conv::kResidualScale];
    pointers[count++] = scratch;
    primitive_->run(std::span<const void* const>(pointers.data(), count));
    if (y_.reorder) y_.reorder->run({pointers[2], args.outputs[0], scratch});
  }

 private:
  uint64_t row_bytes() const { return align_up(static_cast<uint64_t>(conv_.channels) * sizeof(float), 64); }

  Int8Conv conv_;
  std::unique_ptr<onednn::Primitive> primitive_;
  Port x_, w_, y_, residual_;
  uint64_t rows_ = 0, scratch_ = 0;
};

// --- loops, for float64 and for operands without elements: sums of integers are exact in float64

template <class From>
void widen(const From* from, const TensorSpec& spec, int32_t zero, double* to) {
  const int rank = spec.shape.rank();
  Ints at(rank, 0);
  for (int64_t i = 0, n = numel(spec.shape); i < n; ++i) {
    int64_t offset = 0;
    for (int d = 0; d < rank; ++d) offset += at[d] * spec.strides[d];
    to[i] = static_cast<int32_t>(from[offset]) - zero;
    for (int d = rank - 1; d >= 0 && ++at[d] == spec.shape[d]; --d) at[d] = 0;
  }
}
void widen(const void* from, const TensorSpec& spec, int32_t zero, double* to) {
  if (spec.dtype == DType::kUInt8) return widen(static_cast<const uint8_t*>(from), spec, zero, to);
  widen(static_cast<const int8_t*>(from), spec, zero, to);
}

double number_at(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kUInt8: return static_cast<const uint8_t*>(data)[i];
    case DType::kInt8: return static_cast<const int8_t*>(data)[i];
    case DType::kFloat32: return static_cast<const float*>(data)[i];
    default: return static_cast<const double*>(data)[i];
  }
}
void store_at(void* data, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case DType::kUInt8:
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(std::clamp(std::nearbyint(value), 0., 255.));
      return;
    case DType::kInt8:
      static_cast<int8_t*>(data)[i] = static_cast<int8_t>(std::clamp(std::nearbyint(value), -128., 127.));
      return;
    case DType::kFloat32: static_cast<float*>(data)[i] = static_cast<float>(value); return;
    default: static_cast<double*>(data)[i] = value;
  }
}

// Scale, shift, residual and activation of sums that lie contiguous.
void finish_sums(const Int8Conv& conv, const double* sums, const KernelArgs& args) {
  const TensorSpec& y = conv.operands.y;
  const int rank = y.shape.rank();
  const void* const* in = args.inputs;
  Ints at(rank, 0);
  for (int64_t i = 0, n = numel(y.shape); i < n; ++i) {
    double value = sums[i] * number_at(in[Int8Conv::kScale], conv.compute, at[1]);
    if (conv.shift) value += number_at(in[Int8Conv::kShift], conv.compute, at[1]);
    int64_t to = 0, from = 0;
    for (int d = 0; d < rank; ++d) to += at[d] * y.strides[d];
    if (conv.residual) {
      for (int d = 0; d < rank; ++d) from += at[d] * conv.residual_spec.strides[d];
      const double step = conv.residual_scale ? number_at(in[Int8Conv::kResidualScale], conv.compute, 0) : 1;
      value += number_at(in[Int8Conv::kResidual], conv.residual_spec.dtype, from) * step;
    }
    store_at(args.outputs[0], y.dtype, to, conv.relu ? std::max(value, 0.) : value);
    for (int d = rank - 1; d >= 0 && ++at[d] == y.shape[d]; --d) at[d] = 0;
  }
}

std::unique_ptr<PreparedKernel> prepare_int8_loops(const Int8Conv& conv, int threads) {
  const ConvOperands& o = conv.operands;
  const auto wide = [](const TensorSpec& spec) { return TensorSpec::contiguous({DType::kFloat64, spec.shape}); };
  const TensorSpec x = wide(o.x), w = wide(o.w), y = wide(o.y);
  WorkspaceLayout workspace;
  const uint64_t x_at = workspace.add(x.extent_bytes()), w_at = workspace.add(w.extent_bytes()),
                 y_at = workspace.add(y.extent_bytes());
  return make_kernel(workspace.bytes(), [=, loops = conv_loops(ConvRole::kOutput, x, w, y, nullptr, conv.geometry,
                                                               threads)](const KernelArgs& args) {
    const auto at = [&](uint64_t offset) { return reinterpret_cast<double*>(at_offset(args.workspace, offset)); };
    const int32_t zero = conv.zero ? *static_cast<const int32_t*>(args.inputs[Int8Conv::kZero]) : 0;
    widen(args.inputs[Int8Conv::kX], conv.operands.x, zero, at(x_at));
    widen(args.inputs[Int8Conv::kWeight], conv.operands.w, 0, at(w_at));
    const void* const inputs[] = {at(x_at), at(w_at)};
    void* const outputs[] = {at(y_at)};
    loops({.inputs = inputs, .outputs = outputs});
    finish_sums(conv, at(y_at), args);
  });
}

std::unique_ptr<PreparedKernel> prepare_int8(const KernelQuery& q, const PrepareContext& context) {
  const Int8Conv conv(q);
  const ConvOperands& o = conv.operands;
  const bool some = numel(o.x.shape) > 0 && numel(o.w.shape) > 0 && numel(o.y.shape) > 0;
  const bool right = !needs(Instead::kLoops, ConvRole::kOutput, o, conv.geometry);
  if (!some || !right || conv.compute != DType::kFloat32) return prepare_int8_loops(conv, context.threads);
  const onednn::ThreadScope scope(context.threads);
  return onednn::translate(q.op.c_str(), [&]() -> std::unique_ptr<PreparedKernel> {
    return std::make_unique<Int8Kernel>(q, conv, context.threads);
  });
}

plan::LayoutPreference int8_conv_layouts(const KernelQuery& q) {
  plan::LayoutPreference p{std::vector<Layout>(q.inputs.size(), Layout::kContiguous), {Layout::kChannelsLast}};
  p.inputs[Int8Conv::kX] = Layout::kChannelsLast;
  if (p.inputs.size() > Int8Conv::kResidual) p.inputs[Int8Conv::kResidual] = Layout::kChannelsLast;
  return p;
}

}  // namespace

void add_int8_kernels(KernelTable& table) {
  add_requantize_kernel(table);
  if (!onednn::multiplies_int8()) return;
  table.add(DeviceKind::kCpu,
            {.op = "int8_conv", .prepare = prepare_int8, .layouts = int8_conv_layouts, .packs = {Int8Conv::kWeight}});
  table.add(DeviceKind::kCpu, {.op = "int8_linear", .prepare = prepare_int8, .packs = {Int8Conv::kWeight}});
}

}  // namespace sluice::cpu
