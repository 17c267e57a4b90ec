// Compiles the including file once per instruction set: the baseline, AVX2 and AVX-512; HWY_DYNAMIC_DISPATCH chooses at
// run time. REQUIRES: HWY_TARGET_INCLUDE names that file. No include guard: the file is read again for each set.
#undef HWY_DISABLED_TARGETS
// Fewer sets make builds faster and libraries smaller. Those beyond AVX-512's foundation, which newer versions of
// Highway know, have lower bits.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | (HWY_AVX3 - 1))
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
