#pragma once
// What generated CUDA sources need in order to be C++ of the host. The fake driver runs their threads
// (fake_driver/threads.h). It includes nothing, so a source compiles in a fraction of a second.
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
#define FAKE_MATH1(name)                                               \
  inline float fake_##name(float a) { return __builtin_##name##f(a); } \
  inline double fake_##name(double a) { return __builtin_##name(a); }
#define FAKE_MATH2(name)                                                           \
  inline float fake_##name(float a, float b) { return __builtin_##name##f(a, b); } \
  inline double fake_##name(double a, double b) { return __builtin_##name(a, b); }
FAKE_MATH1(ceil)
FAKE_MATH1(cos)
FAKE_MATH1(erf)
FAKE_MATH1(exp)
FAKE_MATH1(expm1)
FAKE_MATH1(fabs)
FAKE_MATH1(floor)
FAKE_MATH1(log)
FAKE_MATH1(log1p)
FAKE_MATH1(rint)
FAKE_MATH1(sin)
FAKE_MATH1(sqrt)
FAKE_MATH1(tanh)
FAKE_MATH1(trunc)
FAKE_MATH2(atan2)
FAKE_MATH2(copysign)
FAKE_MATH2(fmod)
FAKE_MATH2(pow)
#define ceil fake_ceil
#define cos fake_cos
#define erf fake_erf
#define exp fake_exp
#define expm1 fake_expm1
#define fabs fake_fabs
#define floor fake_floor
#define log fake_log
#define log1p fake_log1p
#define rint fake_rint
#define sin fake_sin
#define sqrt fake_sqrt
#define tanh fake_tanh
#define trunc fake_trunc
#define atan2 fake_atan2
#define copysign fake_copysign
#define fmod fake_fmod
#define pow fake_pow
#define rintf __builtin_rintf
