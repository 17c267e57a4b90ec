// Vectors of channels, and ConvFinish on them. Compiled for each instruction set of the file that includes it; its
// guard is turned for each.
#if defined(SLUICE_KERNELS_CPU_CONV_COMMON_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_CONV_COMMON_INL_H
#undef SLUICE_KERNELS_CPU_CONV_COMMON_INL_H
#else
#define SLUICE_KERNELS_CPU_CONV_COMMON_INL_H
#endif

#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/math/lane_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

typedef float Lanes __attribute__((vector_size(kVectorBytes)));
constexpr int64_t kLanes = kVectorLanes<float>;

// Templates that deduce it would drop its alignment, so it stays here.
typedef float LanesAnywhere __attribute__((vector_size(kVectorBytes), may_alias, aligned(4)));
HWY_INLINE Lanes read(const float* from) { return *reinterpret_cast<const LanesAnywhere*>(from); }
HWY_INLINE void write(float* to, Lanes v) { *reinterpret_cast<LanesAnywhere*>(to) = v; }

static_assert(kConvPanel % kLanes == 0);
constexpr int64_t kDepth = 256;  // rows of a panel of weights that stay in the first cache

// For the channels from `channel` on.
class FinishLanes {
 public:
  HWY_INLINE FinishLanes(const ConvFinish& f, int64_t channel) : f_(f) {
    if (f.bias) bias_ = read(f.bias + channel);
    if (f.mean) mean_ = read(f.mean + channel), scale_ = read(f.scale + channel), shift_ = read(f.shift + channel);
  }
  // Writes sums to y[at].
  HWY_INLINE void operator()(Lanes sums, float* y, int64_t at) const {
    Lanes v = sums + bias_;
    if (f_.mean) v = (v - mean_) * scale_ + shift_;
    if (f_.residual) v += read(f_.residual + at);
    if (f_.relu) v = v < 0 ? Lanes{} : v;
    write(y + at, v);
  }

 private:
  const ConvFinish& f_;
  Lanes bias_{}, mean_{}, scale_{}, shift_{};
};

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();
#endif
