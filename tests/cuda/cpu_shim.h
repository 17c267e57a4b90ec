#pragma once
// What generated CUDA sources need in order to be C++ of the host: the threads of a launch run one after the other.
#include <cmath>
#include <cstring>

#define __device__
#define __global__

struct Dim {
  unsigned x = 0;
};
static Dim gridDim, blockDim, blockIdx, threadIdx;

inline unsigned __float_as_uint(float v) {
  unsigned bits;
  std::memcpy(&bits, &v, 4);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}
inline unsigned long long atomicCAS(unsigned long long* at, unsigned long long expected, unsigned long long value) {
  const unsigned long long old = *at;
  if (old == expected) *at = value;
  return old;
}
inline void __syncthreads() {}

// CUDA's functions have overloads for float.
using std::atan2, std::ceil, std::copysign, std::cos, std::erf, std::exp, std::expm1, std::fabs, std::floor, std::fmod,
    std::log, std::log1p, std::pow, std::rint, std::sin, std::sqrt, std::tanh, std::trunc;
