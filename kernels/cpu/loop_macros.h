#pragma once
// Bodies of loops.h. `a`, `b` are the operands' elements; outputs may be inputs, which ivdep allows to vectorise.
#include "kernels/cpu/loops.h"
#include "kernels/cpu/vector_math.h"

#define SLUICE_LOOP1(ATTRIBUTES, NAME, TYPE, RESULT, EXPRESSION)            \
  ATTRIBUTES static int NAME(const void* const* in, void* out, int64_t n) { \
    const TYPE* x = static_cast<const TYPE*>(in[0]);                        \
    RESULT* y = static_cast<RESULT*>(out);                                  \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                  \
      const TYPE a = x[i];                                                  \
      y[i] = static_cast<RESULT>(EXPRESSION);                               \
    }                                                                       \
    return kLoopOk;                                                         \
  }

#define SLUICE_LOOP2(ATTRIBUTES, NAME, TYPE, RESULT, EXPRESSION)            \
  ATTRIBUTES static int NAME(const void* const* in, void* out, int64_t n) { \
    const TYPE* x = static_cast<const TYPE*>(in[0]);                        \
    const TYPE* w = static_cast<const TYPE*>(in[1]);                        \
    RESULT* y = static_cast<RESULT*>(out);                                  \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                  \
      const TYPE a = x[i], b = w[i];                                        \
      y[i] = static_cast<RESULT>(EXPRESSION);                               \
    }                                                                       \
    return kLoopOk;                                                         \
  }
