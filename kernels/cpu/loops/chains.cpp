#include "kernels/cpu/loops/chains.h"

#include <algorithm>

#include "kernels/cpu/math/scalar_steps.h"

namespace sluice::cpu {
namespace scalar {
namespace {

// Second operands: none, an element for each, one for all.
#define BEFORE_NONE(K)
#define BEFORE_EACH(K) const float* const o##K = static_cast<const float*>(*in++);
#define BEFORE_ONE(K) const float o##K = *static_cast<const float*>(*in++);
#define STEP_NONE(OP, K) OP##_step(v)
#define STEP_EACH(OP, K) OP##_step(v, o##K[i])
#define STEP_ONE(OP, K) OP##_step(v, o##K)
#define NAME2(A, OTHER_A, B, OTHER_B) A##_##OTHER_A##_##B##_##OTHER_B
#define NAME3(A, OTHER_A, B, OTHER_B, C, OTHER_C) A##_##OTHER_A##_##B##_##OTHER_B##_##C##_##OTHER_C
#define LOOP_OF_CHAIN(NAME, BEFORE, BEHIND, LAST)                              \
  SLUICE_CLONES static int NAME(const void* const* in, void* out, int64_t n) { \
    const float* const x = static_cast<const float*>(*in++);                   \
    BEFORE float* const y = static_cast<float*>(out);                          \
    const int32_t zero = kZero;                                                \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                     \
      float v = x[i];                                                          \
      BEHIND y[i] = LAST;                                                      \
    }                                                                          \
    return 0;                                                                  \
  }
#define CHAIN2(A, OTHER_A, B, OTHER_B)                                                  \
  LOOP_OF_CHAIN(NAME2(A, OTHER_A, B, OTHER_B), BEFORE_##OTHER_A(0) BEFORE_##OTHER_B(1), \
                v = rounded(STEP_##OTHER_A(A, 0), zero);                                \
                , STEP_##OTHER_B(B, 1))
#define CHAIN3(A, OTHER_A, B, OTHER_B, C, OTHER_C)                                                                    \
  LOOP_OF_CHAIN(NAME3(A, OTHER_A, B, OTHER_B, C, OTHER_C),                                                            \
                BEFORE_##OTHER_A(0) BEFORE_##OTHER_B(1) BEFORE_##OTHER_C(2), v = rounded(STEP_##OTHER_A(A, 0), zero); \
                v = rounded(STEP_##OTHER_B(B, 1), zero);, STEP_##OTHER_C(C, 2))
#include "kernels/cpu/loops/chains.inc"
#undef CHAIN2
#undef CHAIN3

struct Chain {
  ChainLink links[kMostLinks];
  size_t count;
  Loop loop;
};
using Other = ChainLink::Other;
constexpr Other NONE = Other::kNone, EACH = Other::kEach, ONE = Other::kOne;
#define CHAIN2(A, OTHER_A, B, OTHER_B) {{{#A, OTHER_A}, {#B, OTHER_B}}, 2, NAME2(A, OTHER_A, B, OTHER_B)},
#define CHAIN3(A, OTHER_A, B, OTHER_B, C, OTHER_C) \
  {{{#A, OTHER_A}, {#B, OTHER_B}, {#C, OTHER_C}}, 3, NAME3(A, OTHER_A, B, OTHER_B, C, OTHER_C)},
constexpr Chain kChains[] = {
#include "kernels/cpu/loops/chains.inc"
};

}  // namespace
}  // namespace scalar

Loop chain_loop(std::span<const ChainLink> links) {
  for (const scalar::Chain& chain : scalar::kChains)
    if (std::equal(links.begin(), links.end(), chain.links, chain.links + chain.count)) return chain.loop;
  return nullptr;
}

}  // namespace sluice::cpu
