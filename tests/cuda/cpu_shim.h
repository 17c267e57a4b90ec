#pragma once
// What generated CUDA sources need in order to be C++ of the host. The fake driver runs their threads
// (fake_driver/threads.h). It includes no header of the host's, so a source compiles in a fraction of a second.
#define __device__
#define __global__
#define __shared__ static  // blocks run one after the other, and so do a module's launches

struct Dim {
  unsigned x;
};
// Of the thread that runs. The layout is known to the fake driver.
struct FakeThread {
  Dim grid, block, at, thread;
  void (*barrier)();
};
static FakeThread* fake_thread;
#define gridDim (fake_thread->grid)
#define blockDim (fake_thread->block)
#define blockIdx (fake_thread->at)
#define threadIdx (fake_thread->thread)
inline void __syncthreads() { fake_thread->barrier(); }

inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline unsigned long long atomicCAS(unsigned long long* at, unsigned long long expected, unsigned long long value) {
  const unsigned long long old = *at;
  if (old == expected) *at = value;
  return old;
}

// CUDA's functions have overloads for float.
namespace fake_math {
#define MATH1(name)                                             \
  inline float name(float a) { return __builtin_##name##f(a); } \
  inline double name(double a) { return __builtin_##name(a); }
#define MATH2(name)                                                         \
  inline float name(float a, float b) { return __builtin_##name##f(a, b); } \
  inline double name(double a, double b) { return __builtin_##name(a, b); }
#include "../../base/scalar/math.inc"
}  // namespace fake_math
using namespace fake_math;
#define rintf __builtin_rintf
