#pragma once
// Batch, layer, group and RMS normalisation.
#include <span>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

struct BatchNormOptions {
  Value weight, bias;               // (C,), optional
  Value running_mean, running_var;  // (C,), optional while training
  bool training = false;            // normalise by the batch's statistics and update the running ones
  double momentum = 0.1;
  double eps = 1e-5;
};
struct BatchNormResult {
  Value y;
  Value running_mean, running_var;  // what the caller assigns back; undefined when nothing is to be updated
};
// torch.nn.functional.batch_norm over (N, C) or (N, C, spatial...), functionally.
BatchNormResult batch_norm(const Value& x, const BatchNormOptions& options);

// torch.nn.functional.layer_norm / rms_norm over the last normalized_shape.size() dims.
Value layer_norm(const Value& x, const Ints& normalized_shape, const Value& weight = {}, const Value& bias = {},
                 double eps = 1e-5);
Value rms_norm(const Value& x, const Ints& normalized_shape, const Value& weight = {}, double eps = 1e-6);
// torch.nn.functional.group_norm over (N, C, spatial...).
Value group_norm(const Value& x, int64_t num_groups, const Value& weight = {}, const Value& bias = {},
                 double eps = 1e-5);

std::span<const OpDef* const> normalization_ops();

}  // namespace sluice::ops
