#pragma once
// Optimizer steps as ops: everything of one parameter in one pass. Functional; plans run them in place.
#include <span>
#include <vector>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

struct SgdOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
};
struct SgdInputs {
  Value param, grad;
  Value lr;               // 0-d, of a float dtype
  Value momentum_buffer;  // shaped as param, zeros before the first step; required when momentum != 0
  Value step;             // 0-d, number of this step from 1; needed only when momentum and dampening are both != 0
};
// torch.optim.SGD: {param'} without momentum, {param', momentum_buffer'} with.
std::vector<Value> sgd_update(const SgdInputs& inputs, const SgdOptions& options);

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;  // AdamW
  bool maximize = false;
};
struct AdamInputs {
  Value param, grad, exp_avg, exp_avg_sq;
  Value step;            // 0-d, float or int64: number of this step, from 1
  Value lr;              // 0-d, of a float dtype
  Value max_exp_avg_sq;  // defined = amsgrad
};
// torch.optim.Adam / AdamW: {param', exp_avg', exp_avg_sq'} and, with amsgrad, max_exp_avg_sq'.
std::vector<Value> adam_update(const AdamInputs& inputs, const AdamOptions& options);

std::span<const OpDef* const> optimizer_updates_ops();

}  // namespace sluice::ops
