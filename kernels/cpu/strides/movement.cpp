// copy, concat, pad, flip: copies into parts of the output. Reshape, permute, expand and slice are views, without
// kernels.
#include <vector>

#include "kernels/copy.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/strides/strided_copy.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

// One input copied to a place in the output.
struct Part {
  StridedCopy copy;
  int input;
  int64_t from_bytes, to_bytes;
};

class Parts final : public PreparedKernel {
 public:
  Parts(std::vector<Part> parts, std::vector<StridedFill> background, int threads)
      : parts_(std::move(parts)), background_(std::move(background)), threads_(threads) {}

  void run(const KernelArgs& args) const override {
    for (const StridedFill& fill : background_) fill.run(args.outputs[0], threads_);
    for (const Part& p : parts_)
      p.copy.run(static_cast<const char*>(args.inputs[p.input]) + p.from_bytes,
                 static_cast<char*>(args.outputs[0]) + p.to_bytes, threads_);
  }

 private:
  const std::vector<Part> parts_;
  const std::vector<StridedFill> background_;
  const int threads_;
};

void check_operands(const plan::KernelQuery& q) {
  SLUICE_CHECK(!q.inputs.empty() && q.outputs.size() == 1, "{}: {} inputs and {} outputs; needs inputs and one output",
               q.op, q.inputs.size(), q.outputs.size());
  for (const TensorSpec& in : q.inputs)
    SLUICE_CHECK_KIND(kType, in.dtype == q.outputs[0].dtype, "{}: from {} to {}; dtypes must be equal", q.op,
                      dtype_name(in.dtype), dtype_name(q.outputs[0].dtype));
}

using Kernel = std::unique_ptr<PreparedKernel>;

Kernel prepare_copy(const plan::KernelQuery& q, const PrepareContext& context) {
  check_operands(q);
  const TensorSpec &in = q.inputs[0], &out = q.outputs[0];
  SLUICE_CHECK(in.shape == out.shape, "copy: from {} to {}; shapes must be equal", in.shape.str(), out.shape.str());
  std::vector<Part> parts = {{StridedCopy(in.shape, in.strides, out.strides, dtype_size(in.dtype)), 0, 0, 0}};
  return std::make_unique<Parts>(std::move(parts), std::vector<StridedFill>(), context.threads);
}

Kernel prepare_concat(const plan::KernelQuery& q, const PrepareContext& context) {
  check_operands(q);
  const TensorSpec& out = q.outputs[0];
  const int dim = normalize_axis(get_attr<int64_t>(q.attrs, "dim"), out.shape.rank(), "concat");
  const auto size = static_cast<int64_t>(dtype_size(out.dtype));
  std::vector<Part> parts;
  int64_t at = 0;
  for (size_t k = 0; k < q.inputs.size(); ++k) {
    const TensorSpec& in = q.inputs[k];
    parts.push_back(
        {StridedCopy(in.shape, in.strides, out.strides, size), static_cast<int>(k), 0, at * out.strides[dim] * size});
    at += in.shape[dim];
  }
  return std::make_unique<Parts>(std::move(parts), std::vector<StridedFill>(), context.threads);
}

Kernel prepare_pad(const plan::KernelQuery& q, const PrepareContext& context) {
  check_operands(q);
  const TensorSpec &in = q.inputs[0], &out = q.outputs[0];
  const Ints &low = get_attr<Ints>(q.attrs, "low"), &interior = get_attr<Ints>(q.attrs, "interior");
  Strides steps = out.strides;
  int64_t at = 0;
  for (int i = 0; i < out.shape.rank(); ++i) {
    at += low[i] * out.strides[i];
    if (!interior.empty()) steps[i] *= interior[i] + 1;
  }
  const auto size = static_cast<int64_t>(dtype_size(out.dtype));
  std::vector<Part> parts = {{StridedCopy(in.shape, in.strides, steps, size), 0, 0, at * size}};
  std::vector<StridedFill> background;
  if (in.shape != out.shape) background.emplace_back(out, get_attr<double>(q.attrs, "value"));
  return std::make_unique<Parts>(std::move(parts), std::move(background), context.threads);
}

Kernel prepare_flip(const plan::KernelQuery& q, const PrepareContext& context) {
  check_operands(q);
  const TensorSpec &in = q.inputs[0], &out = q.outputs[0];
  Strides strides = in.strides;
  int64_t at = 0;
  for (int64_t d : get_attr<Ints>(q.attrs, "dims")) {
    const int axis = normalize_axis(d, in.shape.rank(), "flip");
    if (in.shape.rank() == 0 || in.shape[axis] == 0 || strides[axis] != in.strides[axis]) continue;
    at += (in.shape[axis] - 1) * in.strides[axis];
    strides[axis] = -in.strides[axis];
  }
  const auto size = static_cast<int64_t>(dtype_size(in.dtype));
  std::vector<Part> parts = {{StridedCopy(in.shape, strides, out.strides, size), 0, at * size, 0}};
  return std::make_unique<Parts>(std::move(parts), std::vector<StridedFill>(), context.threads);
}

}  // namespace

void add_movement_kernels(KernelTable& table) {
  const auto add = [&](const char* op, Kernel (*prepare)(const plan::KernelQuery&, const PrepareContext&)) {
    table.add(DeviceKind::kCpu, {.op = op, .prepare = prepare, .layouts = any_layouts});
  };
  table.add(DeviceKind::kCpu, copy_kernel());
  add("concat", prepare_concat);
  add("pad", prepare_pad);
  add("flip", prepare_flip);
}

}  // namespace sluice::cpu

namespace sluice {

KernelDef copy_kernel() { return {.op = "copy", .prepare = cpu::prepare_copy, .layouts = cpu::any_layouts}; }

}  // namespace sluice
