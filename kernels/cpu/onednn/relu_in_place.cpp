#include "kernels/cpu/onednn/relu_in_place.h"

#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/strides/strided.h"

namespace sluice::cpu {

void relu_in_place(DType dtype, void* x, int64_t n, int threads) {
  constexpr int64_t kGrain = 32768;  // elements worth a thread
  dispatch_floating(dtype, "relu", [&](auto t) {
    using T = decltype(t);
    parallel_ranges(threads, n, kGrain, [&](int64_t begin, int64_t end) {
      T* const at = static_cast<T*>(x);
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (sizeof(T) == 2) {  // by its bits: a sign, and a magnitude that is neither 0 nor NaN's
          constexpr uint16_t kInfinity = std::is_same_v<T, BFloat16> ? 0x7f80 : 0x7c00;
          const uint16_t size = at[i].bits & 0x7fff;
          at[i].bits = (at[i].bits & 0x8000) != 0 && size != 0 && size <= kInfinity ? uint16_t{0} : at[i].bits;
        } else {
          at[i] = at[i] < 0 ? T(0) : at[i];
        }
      }
    });
  });
}

}  // namespace sluice::cpu
