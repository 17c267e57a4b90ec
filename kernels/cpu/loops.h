#pragma once
// Elementwise functions as loops over contiguous memory, in the few types computed in. Everything else (16-bit floats,
// small integers, strides, broadcasting) is brought into tiles of these types by the elementwise kernel.
#include <cstdint>

namespace sluice::cpu {

// Computes out[i] from in[...][i] for i < n; out may be one of the inputs. Not 0: the LoopError.
using Loop = int (*)(const void* const* in, void* out, int64_t n);
enum LoopError : int { kLoopOk = 0, kDivisionByZero = 1, kNegativeExponent = 2 };

struct LoopSet {
  const char* op;
  int inputs;
  Loop f32 = nullptr;  // float operands (float16 and bfloat16 as well)
  Loop f64 = nullptr;
  Loop i64 = nullptr;       // integers and bool; null: not defined for them
  bool gives_bool = false;  // writes bytes 0 and 1; otherwise the operands' type
  bool heavy = false;       // tens of operations per element: worth threads earlier
};

struct LoopSpan {
  const LoopSet* begin;
  const LoopSet* end;
};
LoopSpan unary_loops();
LoopSpan binary_loops();
LoopSpan comparison_loops();
LoopSpan activation_loops();  // gelu's tanh variants are named "gelu:tanh" and "gelu_backward:tanh"

}  // namespace sluice::cpu
