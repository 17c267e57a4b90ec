// Instruction sets that vector loops are compiled for: the baseline, AVX2 and AVX-512; chosen at run time. Include
// before hwy/foreach_target.h. Fewer targets, faster builds.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
