#include "kernels/copy.h"

#include <cstring>

namespace sluice {
namespace {

using plan::Layout;

// Runs of bytes that are contiguous on both sides, under an odometer over the remaining axes.
class Copy final : public PreparedKernel {
 public:
  Copy(const TensorSpec& from, const TensorSpec& to) {
    if (numel(from.shape) == 0) return;
    const auto size = static_cast<int64_t>(dtype_size(from.dtype));
    if (from.strides == to.strides && is_dense(from.shape, from.strides)) {
      run_bytes_ = static_cast<size_t>(from.extent_bytes());
      return;
    }
    int64_t run = 1;
    int axis = from.shape.rank() - 1;
    for (; axis >= 0; --axis) {
      if (from.shape[axis] == 1) continue;
      if (from.strides[axis] != run || to.strides[axis] != run) break;
      run *= from.shape[axis];
    }
    run_bytes_ = static_cast<size_t>(run * size);
    for (int i = 0; i <= axis; ++i) {
      if (from.shape[i] == 1) continue;
      dims_.push_back(from.shape[i]);
      from_steps_.push_back(from.strides[i] * size);
      to_steps_.push_back(to.strides[i] * size);
    }
  }

  void run(const KernelArgs& args) const override {
    if (run_bytes_ == 0) return;
    const auto* from = static_cast<const char*>(args.inputs[0]);
    auto* to = static_cast<char*>(args.outputs[0]);
    Shape at = Shape::filled(dims_.rank(), 0);
    for (;;) {
      std::memcpy(to, from, run_bytes_);
      int axis = dims_.rank() - 1;
      for (; axis >= 0; --axis) {
        from += from_steps_[axis];
        to += to_steps_[axis];
        if (++at[axis] < dims_[axis]) break;
        from -= from_steps_[axis] * dims_[axis];
        to -= to_steps_[axis] * dims_[axis];
        at[axis] = 0;
      }
      if (axis < 0) return;
    }
  }

 private:
  size_t run_bytes_ = 0;
  Shape dims_;
  Strides from_steps_, to_steps_;  // in bytes
};

std::unique_ptr<PreparedKernel> prepare(const plan::KernelQuery& query, const PrepareContext&) {
  SLUICE_CHECK(query.inputs.size() == 1 && query.outputs.size() == 1,
               "copy: {} inputs and {} outputs; needs one of each", query.inputs.size(), query.outputs.size());
  const TensorSpec &from = query.inputs[0], &to = query.outputs[0];
  SLUICE_CHECK(from.dtype == to.dtype && from.shape == to.shape,
               "copy: from {}{} to {}{}; dtype and shape must be equal", dtype_name(from.dtype), from.shape.str(),
               dtype_name(to.dtype), to.shape.str());
  return std::make_unique<Copy>(from, to);
}

plan::LayoutPreference layouts(const plan::KernelQuery&) { return {{Layout::kAny}, {Layout::kAny}}; }

}  // namespace

KernelDef copy_kernel() { return {"copy", prepare, layouts, {}}; }

}  // namespace sluice
