#pragma once
// Elementwise reductions of host memory, by dtype.
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace sluice::collective {

// kAverage is a sum divided by the number of ranks, of floating dtypes alone.
enum class ReduceOp : uint8_t { kSum, kProduct, kMin, kMax, kAverage };
const char* reduce_op_name(ReduceOp op);  // "sum"

// out[i] = a[i] op b[i]; out may be a or b. NaN wins over numbers.
using ReduceFunction = void (*)(void* out, const void* a, const void* b, size_t elements);
// For kAverage it returns the sum. Throws kType for a dtype that the reduction has no meaning for.
ReduceFunction reduce_function(ReduceOp op, DType dtype);
// data[i] /= n. REQUIRES: a floating dtype.
void divide(void* data, DType dtype, int64_t elements, int n);

}  // namespace sluice::collective
