// Attention by products of tiles through shared memory.
#include "kernels/cuda/attention/attention_text.h"

namespace sluice::cuda {

// Operands lie [depth][place] in shared memory, rows of kPitch.
const char* const kTileFunctions = R"(
typedef Pack<C, kEach> Numbers;  // 16 bytes
// kEach neighbours of a row from column `c` on, with zeros beyond its ends.
template <bool kPacked, class At>
__device__ inline Numbers row_of(const T* from, bool inside, Index c, Index columns, At at) {
  Numbers numbers = {};
  if (kPacked && sizeof(T) == sizeof(C) && (u64)from % 16 == 0) {
    if (inside && c < columns) numbers.all = *(const Sixteen*)(from + at(c));
  } else if (inside) {
    for (int k = 0; k < kEach; ++k)
      if (c + k < columns) numbers.v[k] = (C)load(from[at(c + k)]);
  }
  return numbers;
}
// A slice of an operand: kTile rows of kDepth numbers (kAlongDepth), or kDepth rows of kTile. It is fetched while
// another is computed with.
template <bool kAlongDepth> struct Slice {
  static constexpr int kOwn = kDepth * kTile / kEach / kThreads;
  Numbers numbers[kOwn];
  template <class R> __device__ inline void fetch(R row) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int e = (int)threadIdx.x + i * kThreads;
      numbers[i] = kAlongDepth ? row(e % kTile, e / kTile * kEach)
                               : row(e / (kTile / kEach), e % (kTile / kEach) * kEach);
    }
  }
  __device__ inline void put(C* to) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int e = (int)threadIdx.x + i * kThreads;
      if (kAlongDepth) {
        for (int k = 0; k < kEach; ++k) to[(e / kTile * kEach + k) * kPitch + e % kTile] = numbers[i].v[k];
      } else {
        *(Sixteen*)(to + e / (kTile / kEach) * kPitch + e % (kTile / kEach) * kEach) = numbers[i].all;
      }
    }
  }
};
__device__ inline void add_tiles(C (&sums)[kEach][kEach], const C* left, const C* right) {
  const int down = (int)threadIdx.x / 16 * kEach, across = (int)threadIdx.x % 16 * kEach;
  for (int d = 0; d < kDepth; ++d) {
    Pack<C, kEach> a, b;
    a.all = *(const Sixteen*)(left + d * kPitch + down);
    b.all = *(const Sixteen*)(right + d * kPitch + across);
    for (int p = 0; p < kEach; ++p)
      for (int q = 0; q < kEach; ++q) sums[p][q] += a.v[p] * b.v[q];
  }
}
// sums[p][q] += the products of rows of `left` and of `right`.
template <class L, class R>
__device__ inline void add_rows(C (&sums)[kEach][kEach], C* as, C* bs, Index depth, L left, R right) {
  Slice<true> a, b;
  const auto fetch = [&](Index d0) {
    a.fetch([&](int r, int d) { return left(r, d0 + d); });
    b.fetch([&](int r, int d) { return right(r, d0 + d); });
  };
  fetch(0);
  for (Index d0 = 0; d0 < depth; d0 += kDepth) {
    __syncthreads();
    a.put(as);
    b.put(bs);
    __syncthreads();
    if (d0 + kDepth < depth) fetch(d0 + kDepth);
    add_tiles(sums, as, bs);
  }
}
// sums[p][q] += the weights in `ps` times rows of `right`.
template <class R> __device__ inline void add_weighted(C (&sums)[kEach][kEach], const C* ps, C* bs, R right) {
  Slice<false> b;
  const auto fetch = [&](int d0) { b.fetch([&](int r, int c) { return right(d0 + r, c); }); };
  fetch(0);
  for (int d0 = 0; d0 < kTile; d0 += kDepth) {
    __syncthreads();
    b.put(bs);
    __syncthreads();
    if (d0 + kDepth < kTile) fetch(d0 + kDepth);
    add_tiles(sums, ps + d0 * kPitch, bs);
  }
}
__device__ inline C over_row(C v, bool most) {
  for (int step = 8; step > 0; step /= 2) {
    const C other = __shfl_xor_sync(0xffffffffu, v, step);
    v = most ? (other > v ? other : v) : v + other;
  }
  return v;
}
)";

namespace {

// `own`: rows of which a block has a tile. The last tile of queries has the most keys, the first tile of keys the most
// queries; these tiles come first.
std::string beginning(bool keys) {
  return std::string(R"(  __shared__ __align__(16) C as[kDepth * kPitch];
  __shared__ __align__(16) C bs[kDepth * kPitch];
  __shared__ __align__(16) C ps[kTile * kPitch];
  const int down = (int)threadIdx.x / 16 * kEach, across = (int)threadIdx.x % 16 * kEach;
  const Index rest = (Index)blockIdx.x / kTiles, column = rest % kParts * (kWide * kTile);
  const Index n = rest / kParts / kOwners, owner = rest / kParts % kOwners;
)") + (keys ? "  const Index own = owner, k0 = (Index)blockIdx.x % kTiles * kTile;\n"
            : "  const Index h = owner, own = h / kGroup, r0 = (kTiles - 1 - (Index)blockIdx.x % kTiles) * kTile;\n");
}

// Rows of operands, of this tile.
constexpr const char* kRowsOf =
    R"(    const auto q_of = [&](int r, Index d) {
      return row_of<kPackedQ>(q, r0 + r < kRows, d, kE, [&](Index c) { return q_at(n, h, r0 + r, c); });
    };
    const auto k_of = [&](int r, Index d) {
      return row_of<kPackedK>(k, k0 + r < kKeys, d, kE, [&](Index c) { return k_at(n, own, k0 + r, c); });
    };
    const auto v_of = [&](int r, Index d) {
      return row_of<kPackedV>(v, k0 + r < kKeys, d, kV, [&](Index c) { return v_at(n, own, k0 + r, c); });
    };
)";

constexpr const char* kResult = R"(  C out[kWide][kEach][kEach] = {}, top[kEach], sum[kEach];
  for (int p = 0; p < kEach; ++p) {
    top[p] = (C)-INFINITY;
    sum[p] = 0;
  }
  const Index end = kCausal && r0 + kTile < kKeys ? r0 + kTile : kKeys;
  for (Index k0 = 0; k0 < end; k0 += kTile) {
ROWS    C s[kEach][kEach] = {};
    add_rows(s, as, bs, kE, q_of, k_of);
    for (int p = 0; p < kEach; ++p) {
      const Index row = r0 + down + p;
      C most = top[p];
      for (int j = 0; j < kEach; ++j) {
        s[p][j] = score(s[p][j], mask, n, h, row, k0 + across + j);
        most = s[p][j] > most ? s[p][j] : most;
      }
      most = over_row(most, true);
      const C base = most == (C)-INFINITY ? (C)0 : most, decay = exp(top[p] - base);
      top[p] = most;
      sum[p] *= decay;
      for (int j = 0; j < kEach; ++j) {
        const C e = exp(s[p][j] - base);
        sum[p] += e;
        s[p][j] = e * kept(state, n, h, row, k0 + across + j);
      }
#pragma unroll
      for (int w = 0; w < kWide; ++w)
        for (int j = 0; j < kEach; ++j) out[w][p][j] *= decay;
    }
    __syncthreads();
    for (int j = 0; j < kEach; ++j) {
      Pack<C, kEach> line;
      for (int p = 0; p < kEach; ++p) line.v[p] = s[p][j];
      *(Sixteen*)(ps + (across + j) * kPitch + down) = line.all;
    }
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
      const Index c0 = column + w * kTile;
      add_weighted(out[w], ps, bs, [&](int r, int c) { return v_of(r, c0 + c); });
    }
  }
  for (int p = 0; p < kEach; ++p) {
    const Index row = r0 + down + p;
    const C total = over_row(sum[p], false), scale = total == 0 ? (C)0 : 1 / total;
    if (row >= kRows) continue;
    if (column == 0 && across == 0) out1[(n * kHeads + h) * kRows + row] = total == 0 ? (C)0 : top[p] + log(total);
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
      for (int j = 0; j < kEach; ++j) {
        const Index c = column + w * kTile + across + j;
        if (c < kV) store(out0 + out_at(n, h, row, c), out[w][p][j] * scale);
      }
    }
  }
)";

// Statements up to weights `s`, as dropped, and gradients `d` of the scores.
constexpr const char* kWeights = R"(    C s[kEach][kEach] = {}, d[kEach][kEach] = {};
    add_rows(s, as, bs, kE, q_of, k_of);
    const auto grad_of = [&](int r, Index d) {
      return row_of<kPackedGrad>(grad, r0 + r < kRows, d, kV, [&](Index c) { return grad_at(n, h, r0 + r, c); });
    };
    add_rows(d, as, bs, kV, grad_of, v_of);
    for (int p = 0; p < kEach; ++p) {
      const Index row = r0 + down + p, at = row < kRows ? (n * kHeads + h) * kRows + row : 0;
      for (int j = 0; j < kEach; ++j) {
        const Index col = k0 + across + j;
        const C keep = kept(state, n, h, row, col), w = exp(score(s[p][j], mask, n, h, row, col) - lse[at]);
        s[p][j] = w * keep;
        d[p][j] = w * (d[p][j] * keep - delta[at]);
      }
    }
    __syncthreads();
)";

constexpr const char* kQueries = R"(  C dq[kWide][kEach][kEach] = {};
  const Index end = kCausal && r0 + kTile < kKeys ? r0 + kTile : kKeys;
  for (Index k0 = 0; k0 < end; k0 += kTile) {
ROWSWEIGHTS    for (int j = 0; j < kEach; ++j) {
      Pack<C, kEach> line;
      for (int p = 0; p < kEach; ++p) line.v[p] = d[p][j];
      *(Sixteen*)(ps + (across + j) * kPitch + down) = line.all;
    }
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
      const Index c0 = column + w * kTile;
      add_weighted(dq[w], ps, bs, [&](int r, int c) { return k_of(r, c0 + c); });
    }
  }
  for (int p = 0; p < kEach; ++p) {
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
      for (int j = 0; j < kEach; ++j) {
        const Index row = r0 + down + p, c = column + w * kTile + across + j;
        if (row < kRows && c < kE) store(out0 + dq_at(n, h, row, c), dq[w][p][j] * kScale);
      }
    }
  }
)";

constexpr const char* kKeys = R"(  C dk[kWide][kEach][kEach] = {}, dv[kWide][kEach][kEach] = {};
  for (Index h = own * kGroup; h < (own + 1) * kGroup; ++h) {
  for (Index r0 = kCausal ? k0 : 0; r0 < kRows; r0 += kTile) {
ROWSWEIGHTS    const auto put = [&](const C (&from)[kEach][kEach]) {
      for (int p = 0; p < kEach; ++p) {
        Pack<C, kEach> line;
        for (int j = 0; j < kEach; ++j) line.v[j] = from[p][j];
        *(Sixteen*)(ps + (down + p) * kPitch + across) = line.all;
      }
    };
    put(s);
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
      const Index c0 = column + w * kTile;
      add_weighted(dv[w], ps, bs, [&](int r, int c) { return grad_of(r, c0 + c); });
    }
    __syncthreads();
    put(d);
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
      const Index c0 = column + w * kTile;
      add_weighted(dk[w], ps, bs, [&](int r, int c) { return q_of(r, c0 + c); });
    }
  }
  }
  for (int p = 0; p < kEach; ++p) {
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
      for (int j = 0; j < kEach; ++j) {
        const Index row = k0 + down + p, c = column + w * kTile + across + j;
        if (row < kKeys && c < kE) store(out1 + dk_at(n, own, row, c), dk[w][p][j] * kScale);
        if (row < kKeys && c < kV) store(out2 + dv_at(n, own, row, c), dv[w][p][j]);
      }
    }
  }
)";

std::string with(std::string text, const std::string& name, const char* value) {
  const size_t at = text.find(name);
  return at == std::string::npos ? text : text.replace(at, name.size(), value);
}

}  // namespace

std::string tiled_attention(AttentionPart part) {
  const char* text = part == AttentionPart::kResult ? kResult : part == AttentionPart::kQueries ? kQueries : kKeys;
  return beginning(part == AttentionPart::kKeys) + with(with(text, "ROWS", kRowsOf), "WEIGHTS", kWeights);
}

}  // namespace sluice::cuda
