#include "kernels/cuda/prelude.h"

namespace sluice::cuda {

// 16-bit floats are converted by bits, since their intrinsics come with headers that a machine may not have. Rounding
// is to nearest even.
const char* const kPrelude = R"(typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
#ifndef INFINITY
#define INFINITY __uint_as_float(0x7f800000u)
#endif
#ifndef NAN
#define NAN __uint_as_float(0x7fc00000u)
#endif
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct Failure { u64 ticket; i64 values[4]; };

__device__ inline bool failed(const Failure* word, u64 ticket) {
  return word != 0 && word->ticket != 0 && word->ticket != ticket;
}
__device__ inline void raise(Failure* word, u64 ticket, i64 a = 0, i64 b = 0, i64 c = 0, i64 d = 0) {
  if (atomicCAS(&word->ticket, 0ULL, ticket) != 0) return;
  word->values[0] = a;
  word->values[1] = b;
  word->values[2] = c;
  word->values[3] = d;
}
__device__ inline i64 first_index() { return blockIdx.x * (i64)blockDim.x + threadIdx.x; }
__device__ inline i64 index_step() { return gridDim.x * (i64)blockDim.x; }

template <class T> __device__ inline T load(const T& v) { return v; }
__device__ inline float load(const bf16& v) { return __uint_as_float((u32)v.bits << 16); }
__device__ inline float load(const f16& v) {
  const u32 sign = (u32)(v.bits & 0x8000) << 16, exponent = (v.bits >> 10) & 31, fraction = v.bits & 1023;
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * (fraction * 5.9604644775390625e-8f);
  return __uint_as_float(sign | ((exponent == 31 ? 255 : exponent + 112) << 23) | (fraction << 13));
}

template <class To, class T> struct Store { static __device__ inline void at(To* to, T v) { *to = (To)v; } };
template <class T> struct Store<bf16, T> {
  static __device__ inline void at(bf16* to, T v) {
    const u32 bits = __float_as_uint((float)v);
    to->bits = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0 : (u16)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
  }
};
template <class T> struct Store<f16, T> {
  static __device__ inline void at(f16* to, T v) {
    const u32 all = __float_as_uint((float)v), sign = (all >> 16) & 0x8000, bits = all & 0x7fffffffu;
    u32 half = 0;
    if (bits > 0x7f800000u) half = 0x7e00;
    else if (bits >= 0x477ff000u) half = 0x7c00;
    else if (bits < 0x38800000u) half = (u32)rintf(__uint_as_float(bits) * 16777216.0f);
    else half = (bits - (112u << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
    to->bits = (u16)(sign | half);
  }
};
template <class To, class T> __device__ inline void store(To* to, T v) { Store<To, T>::at(to, v); }

// n elements that follow each other: one access where they are 16, 8 or 4 bytes that lie at a multiple of as many.
struct alignas(16) Sixteen { u32 a, b, c, d; };
struct alignas(8) Eight { u32 a, b; };
template <class T, int n> union Pack {
  T v[n];
  u32 four;
  Eight eight;
  Sixteen all;
};
template <int n, class T> __device__ inline Pack<T, n> load_pack(const T* from) {
  Pack<T, n> pack;
  constexpr int bytes = n * sizeof(T);
  if (bytes == 16 && (u64)from % 16 == 0) {
    pack.all = *(const Sixteen*)from;
  } else if (bytes == 8 && (u64)from % 8 == 0) {
    pack.eight = *(const Eight*)from;
  } else if (bytes == 4 && (u64)from % 4 == 0) {
    pack.four = *(const u32*)from;
  } else {
    for (int k = 0; k < n; ++k) pack.v[k] = from[k];
  }
  return pack;
}
template <int n, class T> __device__ inline void store_pack(T* to, const Pack<T, n>& pack) {
  constexpr int bytes = n * sizeof(T);
  if (bytes == 16 && (u64)to % 16 == 0) {
    *(Sixteen*)to = pack.all;
  } else if (bytes == 8 && (u64)to % 8 == 0) {
    *(Eight*)to = pack.eight;
  } else if (bytes == 4 && (u64)to % 4 == 0) {
    *(u32*)to = pack.four;
  } else {
    for (int k = 0; k < n; ++k) to[k] = pack.v[k];
  }
}
// The first `count` of n elements.
template <int n, class T> __device__ inline Pack<T, n> load_part(const T* from, int count) {
  if (count == n) return load_pack<n>(from);
  Pack<T, n> pack = {};
  for (int k = 0; k < n; ++k)
    if (k < count) pack.v[k] = from[k];
  return pack;
}
template <int n, class T> __device__ inline void store_part(T* to, const Pack<T, n>& pack, int count) {
  if (count == n) return store_pack<n>(to, pack);
  for (int k = 0; k < n; ++k)
    if (k < count) to[k] = pack.v[k];
}
)";

const char* const kTeamFunctions = R"(
__device__ inline int member() { return (int)threadIdx.x / kStride % kTeam; }
__device__ inline int team() { return kStride == 1 ? (int)threadIdx.x / kTeam : (int)threadIdx.x % kStride; }
template <class A> __device__ inline A over_team(A mine) {
  __shared__ A all[kThreads];
  all[threadIdx.x] = mine;
  __syncthreads();
  for (int half = kTeam / 2; half > 0; half /= 2) {
    if (member() < half) all[threadIdx.x] = join(all[threadIdx.x], all[threadIdx.x + half * kStride]);
    __syncthreads();
  }
  const A total = all[threadIdx.x - member() * kStride];
  __syncthreads();
  return total;
}
)";

const char* const kRunningFunctions = R"(
struct Running { C top, sum; };
__device__ inline Running join(Running a, Running b) {
  const C top = b.top > a.top ? b.top : a.top, base = top == (C)-INFINITY ? (C)0 : top;
  return Running{top, a.sum * exp(a.top - base) + b.sum * exp(b.top - base)};
}
// Of every `step`th number of x[begin, end), eight loads under way at a time.
template <class X> __device__ inline Running running(const X* x, Index begin, Index end, Index step) {
  Running r = {(C)-INFINITY, 0};
  Index i = begin;
  for (; i + 7 * step < end; i += 8 * step) {
    C v[8], top = r.top;
    for (int k = 0; k < 8; ++k) v[k] = load(x[i + k * step]);
    for (int k = 0; k < 8; ++k) top = v[k] > top ? v[k] : top;
    const C base = top == (C)-INFINITY ? (C)0 : top;
    C sum = r.sum * exp(r.top - base);
    for (int k = 0; k < 8; ++k) sum += exp(v[k] - base);
    r = Running{top, sum};
  }
  for (; i < end; i += step) r = join(r, Running{(C)load(x[i]), 1});
  return r;
}
)";

}  // namespace sluice::cuda
