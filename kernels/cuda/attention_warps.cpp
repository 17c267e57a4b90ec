// Attention by tensor cores, for 16-bit floats. Where a thread's numbers lie in the operands of mma.m16n8k16 (PTX ISA,
// "Matrix fragments for mma.m16n8k16"): with g = lane / 4 and t = lane % 4, of sums 16 x 8 rows g and g + 8, columns 2
// t and 2 t + 1; so sums are, in pairs, the left operand of a product with what they weigh.
#include "kernels/cuda/attention_text.h"

namespace sluice::cuda {

const char* const kWarpFunctions = R"(
#ifndef SLUICE_HOST_SHIM
__device__ inline void mma_16x8x16(float (&d)[4], const u32* a, const u32* b, bf16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void mma_16x8x16(float (&d)[4], const u32* a, const u32* b, f16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
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

// kOther rows of an operand from `first` on, rows of `kPitch` numbers, with zeros beyond its ends.
template <bool kDense, int kWidth, class At>
__device__ inline void load_tile(u16* to, int pitch, const T* from, Index first, Index rows, Index columns, At at) {
  for (int e = (int)threadIdx.x; e < kOther * (kWidth / 8); e += kThreads) {
    const int r = e / (kWidth / 8), c = e % (kWidth / 8) * 8;
    Pack<T, 8> pack = {};
    if (kDense && first + r < rows && c + 8 <= columns) {
      pack = load_pack<8>(from + at(first + r, c));
    } else {
      for (int k = 0; k < 8; ++k)
        if (first + r < rows && c + k < columns) pack.v[k] = from[at(first + r, c + k)];
    }
    *(Sixteen*)(to + r * pitch + c) = pack.all;
  }
}
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
__device__ inline void add_products(float (&sums)[kOther / 8][4], const u32 (&a)[kSteps][4], const u16* tile, int pitch) {
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
__device__ inline void add_weighted(float (&sums)[kColumns][4], const float (&w)[kOther / 8][4], const u16* tile, int pitch) {
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
// Over the four lanes that have a row's numbers.
__device__ inline float over_row(float v, bool most) {
  for (int step = 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, v, step);
    v = most ? (other > v ? other : v) : v + other;
  }
  return v;
}
)";

namespace {

// first_own: of this warp's rows. g, t as above.
constexpr const char* kBegin = R"(  __shared__ __align__(16) u16 tile_e[kOther * kEPitch];
  __shared__ __align__(16) u16 tile_v[kOther * kVPitch];
  const int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
  const Index rest = (Index)blockIdx.x / kTiles, n = rest / kOwners, owner = rest % kOwners;
  const Index tile = kOwnsKeys ? (Index)blockIdx.x % kTiles : kTiles - 1 - (Index)blockIdx.x % kTiles;
  const Index block_first = tile * 128, first = block_first + warp * 16;
)";

constexpr const char* kOperands = R"(  const auto at_q = [&](Index r, Index c) { return q_at(n, h, r, c); };
  const auto at_k = [&](Index r, Index c) { return k_at(n, own, r, c); };
  const auto at_v = [&](Index r, Index c) { return v_at(n, own, r, c); };
)";

constexpr const char* kResult = R"(  const Index h = owner, own = h / kGroup;
OPERANDS  u32 mine[kE16 / 16][4];
  load_own(mine, q, first, kRows, kE, at_q);
  float out[kV16 / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  const Index end = kCausal && block_first + 128 < kKeys ? block_first + 128 : kKeys;
  for (Index k0 = 0; k0 < end; k0 += kOther) {
    __syncthreads();
    load_tile<kDenseK, kE16>(tile_e, kEPitch, k, k0, kKeys, kE, at_k);
    load_tile<kDenseV, kV16>(tile_v, kVPitch, v, k0, kKeys, kV, at_v);
    __syncthreads();
    float s[kOther / 8][4] = {};
    add_products(s, mine, tile_e, kEPitch);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Index row = first + g + half * 8;
      float most = top[half];
#pragma unroll
      for (int j = 0; j < kOther / 4; ++j) {
        float& x = s[j / 2][half * 2 + j % 2];
        x = score(x, mask, n, h, row, k0 + j / 2 * 8 + t * 2 + j % 2);
        most = x > most ? x : most;
      }
      most = over_row(most, true);
      const float base = most == -INFINITY ? 0.0f : most, decay = exp(top[half] - base);
      top[half] = most;
      sum[half] *= decay;
#pragma unroll
      for (int j = 0; j < kOther / 4; ++j) {
        float& x = s[j / 2][half * 2 + j % 2];
        const float e = exp(x - base);
        sum[half] += e;
        x = e * kept(state, n, h, row, k0 + j / 2 * 8 + t * 2 + j % 2);
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
      const Index column = c / 2 * 8 + t * 2 + c % 2;
      if (column < kV) store(out0 + out_at(n, h, row, column), out[c / 2][half * 2 + c % 2] * scale);
    }
  }
)";

constexpr const char* kQueries = R"(  const Index h = owner, own = h / kGroup;
OPERANDS  const auto at_grad = [&](Index r, Index c) { return grad_at(n, h, r, c); };
  u32 mine[kE16 / 16][4], mine_v[kV16 / 16][4];
  load_own(mine, q, first, kRows, kE, at_q);
  load_own(mine_v, grad, first, kRows, kV, at_grad);
  float dq[kE16 / 8][4] = {}, row_lse[2], row_delta[2];
  for (int half = 0; half < 2; ++half) {
    const Index row = first + g + half * 8, at = row < kRows ? (n * kHeads + h) * kRows + row : 0;
    row_lse[half] = lse[at];
    row_delta[half] = delta[at];
  }
  const Index end = kCausal && block_first + 128 < kKeys ? block_first + 128 : kKeys;
  for (Index k0 = 0; k0 < end; k0 += kOther) {
    __syncthreads();
    load_tile<kDenseK, kE16>(tile_e, kEPitch, k, k0, kKeys, kE, at_k);
    load_tile<kDenseV, kV16>(tile_v, kVPitch, v, k0, kKeys, kV, at_v);
    __syncthreads();
    float s[kOther / 8][4] = {}, d[kOther / 8][4] = {};
    add_products(s, mine, tile_e, kEPitch);
    add_products(d, mine_v, tile_v, kVPitch);
#pragma unroll
    for (int j = 0; j < kOther / 2; ++j) {
      const int half = j % 4 / 2;
      const Index row = first + g + half * 8, col = k0 + j / 4 * 8 + t * 2 + j % 2;
      const float w = exp(score(s[j / 4][j % 4], mask, n, h, row, col) - row_lse[half]);
      s[j / 4][j % 4] = w * (d[j / 4][j % 4] * kept(state, n, h, row, col) - row_delta[half]);
    }
    add_weighted(dq, s, tile_e, kEPitch);
  }
#pragma unroll
  for (int j = 0; j < kE16 / 2; ++j) {
    const Index row = first + g + j % 4 / 2 * 8, column = j / 4 * 8 + t * 2 + j % 2;
    if (row < kRows && column < kE) store(out0 + dq_at(n, h, row, column), dq[j / 4][j % 4] * kScale);
  }
)";

// Scores lie transposed: a warp's rows are keys.
constexpr const char* kKeys = R"(  __shared__ float tile_lse[kOther], tile_delta[kOther];
  const Index own = owner;
  u32 mine[kE16 / 16][4], mine_v[kV16 / 16][4];
  load_own(mine, k, first, kKeys, kE, [&](Index r, Index c) { return k_at(n, own, r, c); });
  if (kMakesKeys) load_own(mine_v, v, first, kKeys, kV, [&](Index r, Index c) { return v_at(n, own, r, c); });
  float dk[kMakesKeys ? kE16 / 8 : 2][4] = {}, dv[kMakesValues ? kV16 / 8 : 2][4] = {};
  for (Index h = own * kGroup; h < (own + 1) * kGroup; ++h) {
    for (Index r0 = kCausal ? block_first : 0; r0 < kRows; r0 += kOther) {
      __syncthreads();
      load_tile<kDenseQ, kE16>(tile_e, kEPitch, q, r0, kRows, kE, [&](Index r, Index c) { return q_at(n, h, r, c); });
      load_tile<kDenseGrad, kV16>(tile_v, kVPitch, grad, r0, kRows, kV,
                                  [&](Index r, Index c) { return grad_at(n, h, r, c); });
      for (int r = (int)threadIdx.x; r < kOther; r += kThreads) {
        const Index at = r0 + r < kRows ? (n * kHeads + h) * kRows + r0 + r : 0;
        tile_lse[r] = lse[at];
        tile_delta[r] = delta[at];
      }
      __syncthreads();
      float s[kOther / 8][4] = {};
      add_products(s, mine, tile_e, kEPitch);
#pragma unroll
      for (int j = 0; j < kOther / 2; ++j) {
        const int r = j / 4 * 8 + t * 2 + j % 2;
        const Index col = first + g + j % 4 / 2 * 8;
        s[j / 4][j % 4] = exp(score(s[j / 4][j % 4], mask, n, h, r0 + r, col) - tile_lse[r]);
      }
      if (kMakesKeys) {
        float d[kOther / 8][4] = {};
        add_products(d, mine_v, tile_v, kVPitch);
#pragma unroll
        for (int j = 0; j < kOther / 2; ++j) {
          const int r = j / 4 * 8 + t * 2 + j % 2;
          const float keep = kept(state, n, h, r0 + r, first + g + j % 4 / 2 * 8), w = s[j / 4][j % 4];
          d[j / 4][j % 4] = w * (d[j / 4][j % 4] * keep - tile_delta[r]);
        }
        add_weighted(dk, d, tile_e, kEPitch);
      }
      if (kMakesValues) {
#pragma unroll
        for (int j = 0; j < kOther / 2; ++j)
          s[j / 4][j % 4] *= kept(state, n, h, r0 + j / 4 * 8 + t * 2 + j % 2, first + g + j % 4 / 2 * 8);
        add_weighted(dv, s, tile_v, kVPitch);
      }
    }
  }
  if (kMakesKeys) {
#pragma unroll
    for (int j = 0; j < kE16 / 2; ++j) {
      const Index row = first + g + j % 4 / 2 * 8, column = j / 4 * 8 + t * 2 + j % 2;
      if (row < kKeys && column < kE) store(out1 + dk_at(n, own, row, column), dk[j / 4][j % 4] * kScale);
    }
  }
  if (kMakesValues) {
#pragma unroll
    for (int j = 0; j < kV16 / 2; ++j) {
      const Index row = first + g + j % 4 / 2 * 8, column = j / 4 * 8 + t * 2 + j % 2;
      if (row < kKeys && column < kV) store(out2 + dv_at(n, own, row, column), dv[j / 4][j % 4]);
    }
  }
)";

}  // namespace

std::string warp_attention(AttentionPart part) {
  std::string text = part == AttentionPart::kResult ? kResult : part == AttentionPart::kQueries ? kQueries : kKeys;
  const size_t at = text.find("OPERANDS");
  if (at != std::string::npos) text.replace(at, 8, kOperands);
  return kBegin + text;
}

}  // namespace sluice::cuda
