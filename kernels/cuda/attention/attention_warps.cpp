// Attention by tensor cores. The operands of mma.m16n8k16 and mma.m16n8k8 are spread over threads (PTX ISA, "Matrix
// fragments for mma"): with g = lane / 4 and t = lane % 4, a thread has of sums 16 x 8 rows g and g + 8, columns 2 t
// and 2 t + 1. So sums are the left operand of a product with what they weigh: in pairs for m16n8k16; for m16n8k8,
// whose thread has columns t and t + 4 of it, when the right operand's rows are taken in the order of the sums'
// columns.
#include "kernels/cuda/attention/attention_text.h"

namespace sluice::cuda {
namespace {

// The texts that differ by element: kDeep (columns of a product), the numbers' type in tiles, other_at() (which of
// eight rows of a tile a thread's sums belong to), column_at() (which column a thread's results belong to).
constexpr const char* kHalfFunctions = R"(
typedef u16 Element;
constexpr int kDeep = 16;
#ifndef SLUICE_HOST_SHIM
__device__ inline void mma_16x8x16(float (&d)[4], const u32* a, const u32* b, bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void mma_16x8x16(float (&d)[4], const u32* a, const u32* b, f16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Four matrices of 8 x 8, whose rows lanes 0-7, 8-15, ... point to.
template <bool kTransposed> __device__ inline void load_matrices(u32 (&r)[4], const u16* row) {
  u32 at;
  asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(at) : "l"(row));
  if (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ inline u32 pair_of(float low, float high, bf16) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ inline u32 pair_of(float low, float high, f16) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
#endif

__device__ inline int other_at(int t, int which) { return t * 2 + which; }
__device__ inline int column_at(int c, int t, int which) { return c * 8 + t * 2 + which; }
__device__ inline Sixteen rounded(const Sixteen& pack) { return pack; }
// This warp's 16 rows of an operand, as left operands of products along its columns.
template <int kSteps, class At>
__device__ inline void load_own(u32 (&a)[kSteps][4], const T* from, Index first, Index rows, Index columns, At at) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Index row = first + lane / 4 + j % 2 * 8, c = s * 16 + lane % 4 * 2 + j / 2 * 8;
      const u32 low = row < rows && c < columns ? from[at(row, c)].bits : 0;
      const u32 high = row < rows && c + 1 < columns ? from[at(row, c + 1)].bits : 0;
      a[s][j] = low | high << 16;
    }
  }
}
// sums (16 x kOther) += own rows times rows of the tile.
template <int kSteps>
__device__ inline void add_products(float (&sums)[kOther / 8][4], const u32 (&a)[kSteps][4], const u16* tile,
                                    int pitch) {
  const int lane = (int)threadIdx.x % 32;
  const u16* at = tile + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
#pragma unroll
  for (int m = 0; m < kOther / 16; ++m) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      u32 b[4];
      load_matrices<false>(b, at + m * 16 * pitch + s * 16);
      mma_16x8x16(sums[2 * m], a[s], b, T());
      mma_16x8x16(sums[2 * m + 1], a[s], b + 2, T());
    }
  }
}
// sums (16 x kColumns * 8) += weights (16 x kOther) times the tile.
template <int kColumns>
__device__ inline void add_weighted(float (&sums)[kColumns][4], const float (&w)[kOther / 8][4], const u16* tile,
                                    int pitch) {
  const int lane = (int)threadIdx.x % 32;
  const u16* at = tile + (lane % 8 + lane / 8 % 2 * 8) * pitch + lane / 16 * 8;
#pragma unroll
  for (int m = 0; m < kOther / 16; ++m) {
    const u32 a[4] = {pair_of(w[2 * m][0], w[2 * m][1], T()), pair_of(w[2 * m][2], w[2 * m][3], T()),
                      pair_of(w[2 * m + 1][0], w[2 * m + 1][1], T()), pair_of(w[2 * m + 1][2], w[2 * m + 1][3], T())};
#pragma unroll
    for (int c = 0; c < kColumns / 2; ++c) {
      u32 b[4];
      load_matrices<true>(b, at + m * 16 * pitch + c * 16);
      mma_16x8x16(sums[2 * c], a, b, T());
      mma_16x8x16(sums[2 * c + 1], a, b + 2, T());
    }
  }
}
)";

// Rows of a tile are taken in the order 0 6 1 7 2 4 3 5, which leaves no two threads of a warp at one bank, whether
// they read along rows (add_products) or across (add_weighted), where rows lie 8 banks apart.
constexpr const char* kSingleFunctions = R"(
typedef u32 Element;
constexpr int kDeep = 8;
#ifndef SLUICE_HOST_SHIM
__device__ inline void mma_16x8x8(float (&d)[4], const u32* a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline u32 to_tf32(float v) {
  u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return bits;
}
#endif
__device__ inline int other_at(int t, int which) { return which == 0 ? t : 4 + (t ^ 2); }
__device__ inline int column_at(int c, int t, int which) { return c / 2 * 16 + t * 4 + which * 2 + c % 2; }
__device__ inline Sixteen rounded(const Sixteen& p) {
  return Sixteen{to_tf32(__uint_as_float(p.a)), to_tf32(__uint_as_float(p.b)), to_tf32(__uint_as_float(p.c)),
                 to_tf32(__uint_as_float(p.d))};
}
// Of 16 columns a thread has four neighbours, two for each of two products.
template <int kSteps, class At>
__device__ inline void load_own(u32 (&a)[kSteps][4], const T* from, Index first, Index rows, Index columns, At at) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Index row = first + lane / 4 + j % 2 * 8, c = s / 2 * 16 + lane % 4 * 4 + s % 2 * 2 + j / 2;
      a[s][j] = row < rows && c < columns ? to_tf32(from[at(row, c)]) : 0;
    }
  }
}
template <int kSteps>
__device__ inline void add_products(float (&sums)[kOther / 8][4], const u32 (&a)[kSteps][4], const u32* tile,
                                    int pitch) {
  const int lane = (int)threadIdx.x % 32;
  const u32* at = tile + other_at(lane / 8, lane / 4 % 2) * pitch + lane % 4 * 4;
#pragma unroll
  for (int s = 0; s < kSteps; s += 2) {
    Sixteen b[kOther / 8];
#pragma unroll
    for (int m = 0; m < kOther / 8; ++m) b[m] = *(const Sixteen*)(at + m * 8 * pitch + s * 8);
#pragma unroll
    for (int m = 0; m < kOther / 8; ++m) mma_16x8x8(sums[m], a[s], b[m].a, b[m].b);
#pragma unroll
    for (int m = 0; m < kOther / 8; ++m) mma_16x8x8(sums[m], a[s + 1], b[m].c, b[m].d);
  }
}
template <int kColumns>
__device__ inline void add_weighted(float (&sums)[kColumns][4], const float (&w)[kOther / 8][4], const u32* tile,
                                    int pitch) {
  const int lane = (int)threadIdx.x % 32, t = lane % 4;
  const u32 *low = tile + other_at(t, 0) * pitch + lane / 4 * 2, *high = tile + other_at(t, 1) * pitch + lane / 4 * 2;
#pragma unroll
  for (int m = 0; m < kOther / 8; ++m) {
    const u32 a[4] = {to_tf32(w[m][0]), to_tf32(w[m][2]), to_tf32(w[m][1]), to_tf32(w[m][3])};
#pragma unroll
    for (int c = 0; c < kColumns; c += 2) {
      const Eight b0 = *(const Eight*)(low + m * 8 * pitch + c * 8), b1 = *(const Eight*)(high + m * 8 * pitch + c * 8);
      mma_16x8x8(sums[c], a, b0.a, b1.a);
      mma_16x8x8(sums[c + 1], a, b0.b, b1.b);
    }
  }
}
)";

// A tile is fetched while the one before it is computed with, and put when that has been read.
constexpr const char* kTileOfOthers = R"(
constexpr int kAtOnce = 16 / sizeof(T);
template <int kWidth> struct Ahead {
  static constexpr int kLine = kWidth / kAtOnce, kAll = kOther * kLine, kOwn = (kAll + kThreads - 1) / kThreads;
  Sixteen packs[kOwn];
  // kOther rows of an operand from `first` on, with zeros beyond its ends.
  template <bool kPacked, class At>
  __device__ inline void fetch(const T* from, Index first, Index rows, Index columns, At at) {
    const bool packed = kPacked && (u64)from % 16 == 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int e = (int)threadIdx.x + i * kThreads, r = e / kLine, c = e % kLine * kAtOnce;
      const bool inside = e < kAll && first + r < rows;
      packs[i] = Sixteen{0, 0, 0, 0};
      if (packed) {
        if (inside && c < columns) packs[i] = *(const Sixteen*)(from + at(first + r, c));
      } else if (inside) {
        Pack<T, kAtOnce> pack = {};
        for (int k = 0; k < kAtOnce; ++k)
          if (c + k < columns) pack.v[k] = from[at(first + r, c + k)];
        packs[i] = pack.all;
      }
    }
  }
  __device__ inline void put(Element* to, int pitch) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int e = (int)threadIdx.x + i * kThreads;
      if (kAll % kThreads != 0 && e >= kAll) continue;
      *(Sixteen*)(to + e / kLine * pitch + e % kLine * kAtOnce) = rounded(packs[i]);
    }
  }
};
// Over the four lanes that have a row's numbers.
__device__ inline float over_row(float v, bool most) {
  for (int step = 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, v, step);
    v = most ? (other > v ? other : v) : v + other;
  }
  return v;
}
)";

// first: of this warp's rows. g, t as above.
constexpr const char* kBegin = R"(  __shared__ __align__(16) Element tile_e[kOther * kEPitch];
  __shared__ __align__(16) Element tile_v[kOther * kVPitch];
  const int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
  const Index rest = (Index)blockIdx.x / kTiles, n = rest / kOwners, owner = rest % kOwners;
  const Index tile = kOwnsKeys ? (Index)blockIdx.x % kTiles : kTiles - 1 - (Index)blockIdx.x % kTiles;
  const Index block_first = tile * 128, first = block_first + warp * 16;
  Ahead<kE16> ahead_e;
  Ahead<kV16> ahead_v;
)";

// The loop of a warp that has queries, against tiles of keys.
constexpr const char* kAgainstKeys = R"(  const Index h = owner, own = h / kGroup;
  const auto at_q = [&](Index r, Index c) { return q_at(n, h, r, c); };
  const auto at_k = [&](Index r, Index c) { return k_at(n, own, r, c); };
  const auto at_v = [&](Index r, Index c) { return v_at(n, own, r, c); };
  const auto fetch = [&](Index k0) {
    ahead_e.template fetch<kPackedK>(k, k0, kKeys, kE, at_k);
    ahead_v.template fetch<kPackedV>(v, k0, kKeys, kV, at_v);
  };
  const Index end = kCausal && block_first + 128 < kKeys ? block_first + 128 : kKeys;
  u32 mine[kE16 / kDeep][4];
  load_own(mine, q, first, kRows, kE, at_q);
)";

constexpr const char* kResult = R"(  float out[kV16 / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  fetch(0);
  for (Index k0 = 0; k0 < end; k0 += kOther) {
    __syncthreads();
    ahead_e.put(tile_e, kEPitch);
    ahead_v.put(tile_v, kVPitch);
    __syncthreads();
    if (k0 + kOther < end) fetch(k0 + kOther);
    float s[kOther / 8][4] = {};
    add_products(s, mine, tile_e, kEPitch);
    const bool all = all_take_part(first, 16, k0, kOther);
#pragma unroll
    for (int j = 0; j < kOther / 2; ++j) {
      const Index row = first + g + j % 4 / 2 * 8, col = k0 + j / 4 * 8 + other_at(t, j % 2);
      float& x = s[j / 4][j % 4];
      x = all ? given(x, mask, n, h, row, col) : score(x, mask, n, h, row, col);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Index row = first + g + half * 8;
      float most = top[half];
#pragma unroll
      for (int j = 0; j < kOther / 4; ++j) {
        const float x = s[j / 2][half * 2 + j % 2];
        most = x > most ? x : most;
      }
      most = over_row(most, true);
      const float base = most == -INFINITY ? 0.0f : most, decay = __expf(top[half] - base);
      top[half] = most;
      sum[half] *= decay;
#pragma unroll
      for (int j = 0; j < kOther / 4; ++j) {
        float& x = s[j / 2][half * 2 + j % 2];
        const float e = __expf(x - base);
        sum[half] += e;
        x = e * kept(state, n, h, row, k0 + j / 2 * 8 + other_at(t, j % 2));
      }
#pragma unroll
      for (int c = 0; c < kV16 / 4; ++c) out[c / 2][half * 2 + c % 2] *= decay;
    }
    add_weighted(out, s, tile_v, kVPitch);
  }
  for (int half = 0; half < 2; ++half) {
    const Index row = first + g + half * 8;
    const float total = over_row(sum[half], false), scale = total == 0 ? 0.0f : 1 / total;
    if (row >= kRows) continue;
    if (t == 0) out1[(n * kHeads + h) * kRows + row] = total == 0 ? 0.0f : top[half] + log(total);
#pragma unroll
    for (int c = 0; c < kV16 / 4; ++c) {
      const Index column = column_at(c / 2, t, c % 2);
      if (column < kV) store(out0 + out_at(n, h, row, column), out[c / 2][half * 2 + c % 2] * scale);
    }
  }
)";

constexpr const char* kQueries = R"(  u32 mine_v[kV16 / kDeep][4];
  load_own(mine_v, grad, first, kRows, kV, [&](Index r, Index c) { return grad_at(n, h, r, c); });
  float dq[kE16 / 8][4] = {}, row_lse[2], row_delta[2];
  for (int half = 0; half < 2; ++half) {
    const Index row = first + g + half * 8, at = row < kRows ? (n * kHeads + h) * kRows + row : 0;
    row_lse[half] = lse[at];
    row_delta[half] = delta[at];
  }
  fetch(0);
  for (Index k0 = 0; k0 < end; k0 += kOther) {
    __syncthreads();
    ahead_e.put(tile_e, kEPitch);
    ahead_v.put(tile_v, kVPitch);
    __syncthreads();
    if (k0 + kOther < end) fetch(k0 + kOther);
    float s[kOther / 8][4] = {}, d[kOther / 8][4] = {};
    add_products(s, mine, tile_e, kEPitch);
    add_products(d, mine_v, tile_v, kVPitch);
    const bool all = all_take_part(first, 16, k0, kOther);
#pragma unroll
    for (int j = 0; j < kOther / 2; ++j) {
      const int half = j % 4 / 2;
      const Index row = first + g + half * 8, col = k0 + j / 4 * 8 + other_at(t, j % 2);
      const float x = s[j / 4][j % 4];
      const float w = __expf((all ? given(x, mask, n, h, row, col) : score(x, mask, n, h, row, col)) - row_lse[half]);
      s[j / 4][j % 4] = w * (d[j / 4][j % 4] * kept(state, n, h, row, col) - row_delta[half]);
    }
    add_weighted(dq, s, tile_e, kEPitch);
  }
#pragma unroll
  for (int j = 0; j < kE16 / 2; ++j) {
    const Index row = first + g + j % 4 / 2 * 8, column = column_at(j / 4, t, j % 2);
    if (row < kRows && column < kE) store(out0 + dq_at(n, h, row, column), dq[j / 4][j % 4] * kScale);
  }
)";

// Scores lie transposed: a warp's rows are keys. All heads that share them follow each other, step by step.
constexpr const char* kKeys = R"(  __shared__ float tile_lse[kOther], tile_delta[kOther];
  const Index own = owner;
  u32 mine[kE16 / kDeep][4], mine_v[kV16 / kDeep][4];
  load_own(mine, k, first, kKeys, kE, [&](Index r, Index c) { return k_at(n, own, r, c); });
  if (kMakesKeys) load_own(mine_v, v, first, kKeys, kV, [&](Index r, Index c) { return v_at(n, own, r, c); });
  float dk[kMakesKeys ? kE16 / 8 : 2][4] = {}, dv[kMakesValues ? kV16 / 8 : 2][4] = {};
  const Index begin = kCausal ? block_first : 0, each = begin < kRows ? (kRows - begin + kOther - 1) / kOther : 0;
  float ahead_lse = 0, ahead_delta = 0;
  const auto fetch = [&](Index h, Index r0) {
    ahead_e.template fetch<kPackedQ>(q, r0, kRows, kE, [&](Index r, Index c) { return q_at(n, h, r, c); });
    ahead_v.template fetch<kPackedGrad>(grad, r0, kRows, kV, [&](Index r, Index c) { return grad_at(n, h, r, c); });
    if ((int)threadIdx.x < kOther && r0 + (int)threadIdx.x < kRows) {
      const Index at = (n * kHeads + h) * kRows + r0 + (int)threadIdx.x;
      ahead_lse = lse[at];
      ahead_delta = delta[at];
    }
  };
  if (each > 0) fetch(own * kGroup, begin);
  for (Index step = 0; step < each * kGroup; ++step) {
    const Index h = own * kGroup + step / each, r0 = begin + step % each * kOther;
    __syncthreads();
    ahead_e.put(tile_e, kEPitch);
    ahead_v.put(tile_v, kVPitch);
    if ((int)threadIdx.x < kOther) {
      tile_lse[threadIdx.x] = ahead_lse;
      tile_delta[threadIdx.x] = ahead_delta;
    }
    __syncthreads();
    if (step + 1 < each * kGroup) fetch(own * kGroup + (step + 1) / each, begin + (step + 1) % each * kOther);
    float s[kOther / 8][4] = {};
    add_products(s, mine, tile_e, kEPitch);
    const bool all = all_take_part(r0, kOther, first, 16);
#pragma unroll
    for (int j = 0; j < kOther / 2; ++j) {
      const int r = j / 4 * 8 + other_at(t, j % 2);
      const Index col = first + g + j % 4 / 2 * 8;
      float& x = s[j / 4][j % 4];
      x = all ? given(x, mask, n, h, r0 + r, col) : score(x, mask, n, h, r0 + r, col);
      x = __expf(x - tile_lse[r]);
    }
    if (kMakesKeys) {
      float d[kOther / 8][4] = {};
      add_products(d, mine_v, tile_v, kVPitch);
#pragma unroll
      for (int j = 0; j < kOther / 2; ++j) {
        const int r = j / 4 * 8 + other_at(t, j % 2);
        const float keep = kept(state, n, h, r0 + r, first + g + j % 4 / 2 * 8), w = s[j / 4][j % 4];
        d[j / 4][j % 4] = w * (d[j / 4][j % 4] * keep - tile_delta[r]);
      }
      add_weighted(dk, d, tile_e, kEPitch);
    }
    if (kMakesValues) {
#pragma unroll
      for (int j = 0; j < kOther / 2; ++j)
        s[j / 4][j % 4] *= kept(state, n, h, r0 + j / 4 * 8 + other_at(t, j % 2), first + g + j % 4 / 2 * 8);
      add_weighted(dv, s, tile_v, kVPitch);
    }
  }
  if (kMakesKeys) {
#pragma unroll
    for (int j = 0; j < kE16 / 2; ++j) {
      const Index row = first + g + j % 4 / 2 * 8, column = column_at(j / 4, t, j % 2);
      if (row < kKeys && column < kE) store(out1 + dk_at(n, own, row, column), dk[j / 4][j % 4] * kScale);
    }
  }
  if (kMakesValues) {
#pragma unroll
    for (int j = 0; j < kV16 / 2; ++j) {
      const Index row = first + g + j % 4 / 2 * 8, column = column_at(j / 4, t, j % 2);
      if (row < kKeys && column < kV) store(out2 + dv_at(n, own, row, column), dv[j / 4][j % 4]);
    }
  }
)";

}  // namespace

std::string warp_functions(bool halves) {
  return std::string(halves ? kHalfFunctions : kSingleFunctions) + kTileOfOthers;
}

std::string warp_attention(AttentionPart part) {
  if (part == AttentionPart::kKeys) return std::string(kBegin) + kKeys;
  return std::string(kBegin) + kAgainstKeys + (part == AttentionPart::kResult ? kResult : kQueries);
}

}  // namespace sluice::cuda
