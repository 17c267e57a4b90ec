#pragma once
// Helpers that the normalisations share.
#include "graph/op_def.h"

namespace sluice::ops {

// Statistics and sums over many elements are kept in this dtype: float32 for 16-bit tensors, else the tensor's own.
inline DType stat_dtype(DType dtype) { return dtype_size(dtype) == 2 ? DType::kFloat32 : dtype; }
// Throws unless the optional per-channel operand `index` has `shape` and x's dtype or its stat_dtype.
void check_affine(Types inputs, std::span<const bool> present, int index, const char* name, const Shape& shape,
                  const char* where);
inline Value input_or_none(std::span<const Value> inputs, size_t i) { return i < inputs.size() ? inputs[i] : Value(); }
// `v` of one entry per channel as (1, C, 1...) of rank `rank`.
Value per_channel(const Value& v, int rank);
Cost norm_cost(Types inputs, Types outputs, const Attrs& attrs);

extern const OpDef batch_norm_train_def, batch_norm_backward_def, batch_norm_infer_def;

}  // namespace sluice::ops
