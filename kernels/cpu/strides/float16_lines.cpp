#include "kernels/cpu/strides/float16_lines.h"

#include <bit>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace sluice::cpu {
namespace {

#if defined(__x86_64__)

constexpr int64_t kLanes = 8;
// Clang's __builtin_cpu_supports does not know F16C, so CPUID is asked.
const bool has_f16c = [] {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}();

// Whole vectors; they give how many elements that were.
__attribute__((target("avx,f16c"))) int64_t load_vectors(const Float16* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  return i;
}
__attribute__((target("avx,f16c"))) int64_t store_vectors(const float* from, Float16* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  return i;
}

#else

constexpr bool has_f16c = false;
int64_t load_vectors(const Float16*, float*, int64_t) { return 0; }
int64_t store_vectors(const float*, Float16*, int64_t) { return 0; }

#endif

}  // namespace

void load_float16(const Float16* from, float* to, int64_t n) {
  for (int64_t i = has_f16c ? load_vectors(from, to, n) : 0; i < n; ++i)
    to[i] = static_cast<float>(std::bit_cast<_Float16>(from[i].bits));
}

void store_float16(const float* from, Float16* to, int64_t n) {
  for (int64_t i = has_f16c ? store_vectors(from, to, n) : 0; i < n; ++i)
    to[i] = {std::bit_cast<uint16_t>(static_cast<_Float16>(from[i]))};
}

}  // namespace sluice::cpu
