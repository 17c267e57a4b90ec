#pragma once
#define SLUICE_HOST_SHIM
// Declarations that generated CUDA sources need in order to be C++ of the host. The fake driver runs their threads
// (fake_driver/threads.h). It includes no header of the host's, so a source compiles in a fraction of a second.
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static  // blocks run one after the other, and so do a module's launches

struct Dim {
  unsigned x;
};
// The indices of the thread that runs. The layout is known to the fake driver.
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
namespace fake_math {
#define MATH1(name)                                             \
  inline float name(float a) { return __builtin_##name##f(a); } \
  inline double name(double a) { return __builtin_##name(a); }
#define MATH2(name)                                                         \
  inline float name(float a, float b) { return __builtin_##name##f(a, b); } \
  inline double name(double a, double b) { return __builtin_##name(a, b); }
#include "../../base/scalar/math.inc"
}  // namespace fake_math
using namespace fake_math;
#define rintf __builtin_rintf
#define __expf __builtin_expf

// The threads of a warp show each other what they have, between two barriers. So all threads of a block must come here
// together, which is more than the device asks for.
template <class V>
V __shfl_xor_sync(unsigned, V v, int mask) {
  static V shown[1024];
  shown[threadIdx.x] = v;
  __syncthreads();
  const V other = shown[threadIdx.x ^ mask];
  __syncthreads();
  return other;
}

// Matrix fragments as PTX lays them: the left operand (16 x K), the right one (K x 8), sums (16 x 8); a register holds
// K / 8 neighbours along K, which value(register, which) gives.
template <int K, class Value>
void multiply_fragments(float (&d)[4], const unsigned* a, const unsigned* b, Value value) {
  constexpr int kEach = K / 8;
  static unsigned shown[1024][6];
  for (int k = 0; k < 6; ++k) shown[threadIdx.x][k] = k < 4 ? a[k] : b[k - 4];
  __syncthreads();
  const unsigned(*warp)[6] = shown + threadIdx.x / 32 * 32;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int j = 0; j < 4; ++j) {
    const int row = g + j / 2 * 8, column = t * 2 + j % 2;
    float sum = 0;
    for (int k = 0; k < K; ++k) {
      const int lane = k % (K / 2) / kEach, upper = k / (K / 2);
      sum += value(warp[row % 8 * 4 + lane][row / 8 + upper * 2], k % kEach) *
             value(warp[column * 4 + lane][4 + upper], k % kEach);
    }
    d[j] += sum;
  }
  __syncthreads();
}

template <class T>
void mma_16x8x16(float (&d)[4], const unsigned* a, const unsigned* b, T) {
  multiply_fragments<16>(d, a, b, [](unsigned pair, int which) {
    T value;
    value.bits = (unsigned short)(pair >> 16 * which);
    return load(value);
  });
}

// The operands must have been rounded: nobody says what the device makes of other bits.
inline void mma_16x8x8(float (&d)[4], const unsigned* a, unsigned b0, unsigned b1) {
  const unsigned b[] = {b0, b1};
  multiply_fragments<8>(d, a, b, [](unsigned bits, int) {
    if ((bits & 0x1fff) != 0) __builtin_trap();
    return __uint_as_float(bits);
  });
}

inline unsigned to_tf32(float v) {
  const unsigned bits = __float_as_uint(v);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fffe000;
  return (bits + 0x1000) & ~0x1fffu;
}

template <bool kTransposed>
void load_matrices(unsigned (&r)[4], const unsigned short* row) {
  static const unsigned short* shown[1024];
  if ((unsigned long long)row % 16 != 0) __builtin_trap();
  shown[threadIdx.x] = row;
  __syncthreads();
  const int warp = threadIdx.x / 32 * 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int m = 0; m < 4; ++m) {
    const unsigned short* const* rows = shown + warp + m * 8;
    r[m] = kTransposed ? rows[t * 2][g] | (unsigned)rows[t * 2 + 1][g] << 16
                       : rows[g][t * 2] | (unsigned)rows[g][t * 2 + 1] << 16;
  }
  __syncthreads();
}

template <class T>
unsigned pair_of(float low, float high, T) {
  T a, b;
  store(&a, low);
  store(&b, high);
  return a.bits | (unsigned)b.bits << 16;
}
