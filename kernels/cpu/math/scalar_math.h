#pragma once
// The meaning of the expressions of base/scalar on the cpu. A vectorised function of float32 (vector_math.h), where
// there is one, stands for C's: it is a separate implementation, whose accuracy tests hold against C's.
#include <cmath>
#include <complex>
#include <cstdint>

#include "kernels/cpu/math/vector_exponentials.h"
#include "kernels/cpu/math/vector_math.h"
#include "kernels/cpu/math/vector_trigonometry.h"

namespace sluice::cpu {
namespace c_math {

#define MATH1(NAME) using std::NAME;
#define MATH2(NAME) using std::NAME;
#include "base/scalar/math.inc"

}  // namespace c_math

namespace scalar {

using namespace c_math;  // behind what is declared here
using i64 = int64_t;
using u64 = uint64_t;

SLUICE_INLINE float exp(float x) { return exp_f(x); }
SLUICE_INLINE double exp(double x) { return std::exp(x); }
SLUICE_INLINE float expm1(float x) { return expm1_f(x); }
SLUICE_INLINE double expm1(double x) { return std::expm1(x); }
SLUICE_INLINE float log(float x) { return log_f(x); }
SLUICE_INLINE double log(double x) { return std::log(x); }
SLUICE_INLINE float log1p(float x) { return log1p_f(x); }
SLUICE_INLINE double log1p(double x) { return std::log1p(x); }
SLUICE_INLINE float tanh(float x) { return tanh_f(x); }
SLUICE_INLINE double tanh(double x) { return std::tanh(x); }
SLUICE_INLINE float erf(float x) { return erf_f(x); }
SLUICE_INLINE double erf(double x) { return std::erf(x); }
SLUICE_INLINE float sin(float x) { return sin_f(x); }
SLUICE_INLINE double sin(double x) { return std::sin(x); }
SLUICE_INLINE float cos(float x) { return cos_f(x); }
SLUICE_INLINE double cos(double x) { return std::cos(x); }
SLUICE_INLINE float tan(float x) { return tan_f(x); }
SLUICE_INLINE double tan(double x) { return std::tan(x); }
SLUICE_INLINE float atan(float x) { return atan_f(x); }
SLUICE_INLINE double atan(double x) { return std::atan(x); }
SLUICE_INLINE float exp2(float x) { return exp2_f(x); }
SLUICE_INLINE double exp2(double x) { return std::exp2(x); }
SLUICE_INLINE float log2(float x) { return log2_f(x); }
SLUICE_INLINE double log2(double x) { return std::log2(x); }
SLUICE_INLINE float log10(float x) { return log10_f(x); }
SLUICE_INLINE double log10(double x) { return std::log10(x); }
SLUICE_INLINE float sinh(float x) { return sinh_f(x); }
SLUICE_INLINE double sinh(double x) { return std::sinh(x); }
SLUICE_INLINE float cosh(float x) { return cosh_f(x); }
SLUICE_INLINE double cosh(double x) { return std::cosh(x); }
SLUICE_INLINE float atanh(float x) { return atanh_f(x); }
SLUICE_INLINE double atanh(double x) { return std::atanh(x); }
SLUICE_INLINE float erfc(float x) { return erfc_f(x); }
SLUICE_INLINE double erfc(double x) { return std::erfc(x); }
SLUICE_INLINE float asin(float x) { return asin_f(x); }
SLUICE_INLINE double asin(double x) { return std::asin(x); }
SLUICE_INLINE float acos(float x) { return acos_f(x); }
SLUICE_INLINE double acos(double x) { return std::acos(x); }
SLUICE_INLINE float atan2(float y, float x) { return atan2_f(y, x); }
SLUICE_INLINE double atan2(double y, double x) { return std::atan2(y, x); }
SLUICE_INLINE float pow(float a, float b) { return pow_f(a, b); }
SLUICE_INLINE double pow(double a, double b) { return std::pow(a, b); }
SLUICE_INLINE float log1p_of_share(float x) { return log1p_of_share_f(x); }
SLUICE_INLINE float erfinv_of(float x) { return erfinv_f(x); }

// C's lgamma also writes a global variable, signgam, which threads would do at once.
SLUICE_INLINE float lgamma(float x) {
  int sign;
  return ::lgammaf_r(x, &sign);
}
SLUICE_INLINE double lgamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);
}

#define FUNCTION(NAME, PARAMETERS, ...) \
  template <class T>                    \
  SLUICE_INLINE T NAME PARAMETERS {     \
    __VA_ARGS__                         \
  }
#define INTEGER_FUNCTION(NAME, PARAMETERS, ...) \
  SLUICE_INLINE i64 NAME PARAMETERS { __VA_ARGS__ }
#include "base/scalar/functions.inc"

}  // namespace scalar
}  // namespace sluice::cpu
