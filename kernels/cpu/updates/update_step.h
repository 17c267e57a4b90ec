#pragma once
// The step of an optimizer on the elements of one parameter: what the kernels of single updates and of many share.
#include <string>
#include <vector>

#include "base/attr.h"

namespace sluice::cpu {

// Numbers of a step; those that tensors hold (lr, step) are read when it runs.
struct Step {
  double lr = 0, step = 0;
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
  double beta1 = 0, beta2 = 0, eps = 0;
  bool decoupled = false;
};
// tensors: the op's inputs without the scalars; out: its outputs. [begin, end) is the range of elements.
using StepFn = void (*)(const Step&, const void* const* tensors, void* const* out, int64_t begin, int64_t end);

class UpdateStep {
 public:
  // The step for a call of an op of updates, whose operands have these dtypes. Throws Error(kUnsupported) for other
  // ops.
  UpdateStep(const std::string& op, const NamedAttrs& attrs, const std::vector<DType>& operands);

  int tensors() const { return tensors_; }      // the operands in front: the parameter, its gradient, state
  int outputs() const { return tensors_ - 1; }  // all of them but the gradient
  StepFn run() const { return run_; }
  // The numbers of a step, from the operands of a call; those behind its last one are not looked at.
  Step read(const void* const* operands) const;

 private:
  Step fixed_;
  StepFn run_ = nullptr;
  int tensors_ = 0;
  size_t lr_ = 0, step_ = 0;
  bool has_step_ = false;
  DType lr_dtype_ = DType::kFloat32, step_dtype_ = DType::kInt64;
};

}  // namespace sluice::cpu
