// attention and its backward, tile by tile: a tile of scores is never as large as the scores (Dao et al.,
// "FlashAttention", 2022; the running maximum of a row as in Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018). A query row is a vector lane: a tile of scores lies (keys, rows), so that keys and values are read
// where they lie, with any strides, one number at a time, and no row is summed across lanes. Every sum is made in an
// order that the shape gives.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention.cpp"

#include "kernels/cpu/attention/attention.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/math/simd_foreach.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"
// clang-format off
#include "kernels/cpu/attention/attention_row-inl.h"
#include "kernels/cpu/attention/attention_tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

// The maximum and the sum of each row as keys are added to them.
template <class T>
HWY_INLINE void add_weights(const RowTile<T>& t, int64_t count, Compute<T>* scores, Compute<T>* top, Compute<T>* sum,
                            Compute<T>* base, Compute<T>* decay) {
  using C = Compute<T>;
  constexpr int64_t kRows = RowTile<T>::kRows;
  std::copy(top, top + t.lanes, base);
  for (int64_t c = 0; c < count; ++c) {
    const C* x = scores + c * kRows;
#pragma omp simd
    for (int64_t l = 0; l < t.lanes; ++l) base[l] = x[l] > base[l] ? x[l] : base[l];
  }
#pragma omp simd
  for (int64_t l = 0; l < t.lanes; ++l) {
    const C before = top[l];
    top[l] = base[l];
    base[l] = base[l] == -std::numeric_limits<C>::infinity() ? C(0) : base[l];
    decay[l] = exponential(before - base[l]);
    sum[l] *= decay[l];
  }
  for (int64_t c = 0; c < count; ++c) {
    C* x = scores + c * kRows;
#pragma omp simd
    for (int64_t l = 0; l < t.lanes; ++l) {
      const C e = exponential(x[l] - base[l]);
      sum[l] += e;
      x[l] = e;
    }
  }
}

template <class T>
HWY_INLINE void forward_tile(RowTile<T>& t) {
  using C = Compute<T>;
  constexpr int64_t kRows = RowTile<T>::kRows;
  const AttentionShape& s = t.s;
  const int64_t own = t.h / (s.heads / s.own_heads);
  C *scores = t.at(s.scratch.scores), *kept = t.at(s.scratch.kept), *out = t.at(s.scratch.out_lanes);
  C *top = t.sums(0), *sum = t.sums(1), *base = t.sums(2), *decay = t.sums(3);
  std::fill(top, top + t.lanes, -std::numeric_limits<C>::infinity());
  std::fill(sum, sum + t.lanes, C(0));
  std::fill(out, out + s.value_width * kRows, C(0));
  t.take(t.p.q, s.q, s.width, static_cast<C>(s.scale), t.at(s.scratch.q_lanes), nullptr);
  for (int64_t begin = 0; begin < t.key_end(); begin += kKeyTile) {
    const int64_t count = std::min(kKeyTile, t.key_end() - begin);
    const Matrix<C> keys = widened(static_cast<const T*>(t.p.k) + s.k.at(t.n, own, begin), s.k, count, s.width,
                                   t.at(s.scratch.keys)),
                    values = widened(static_cast<const T*>(t.p.v) + s.v.at(t.n, own, begin), s.v, count, s.value_width,
                                     t.at(s.scratch.values));
    t.make_scores(keys, begin, count, scores);
    add_weights(t, count, scores, top, sum, base, decay);
    if (s.dropout_p > 0) {
      t.make_kept(begin, count, kept);
      t.scale_by(scores, kept, count);
    }
    multiply<C>({values.data, values.col, values.row, scores, kRows, out, kRows, s.value_width, count, t.lanes,
                 begin == 0, begin == 0 ? nullptr : decay});
  }
  C* lse = static_cast<C*>(t.p.out_lse) + (t.n * s.heads + t.h) * s.rows + t.first;
  for (int64_t l = 0; l < t.rows; ++l) lse[l] = sum[l] == 0 ? C(0) : top[l] + std::log(sum[l]);
  for (int64_t l = 0; l < t.lanes; ++l) decay[l] = sum[l] == 0 ? C(0) : 1 / sum[l];
  for (int64_t c = 0; c < s.value_width; ++c) {
#pragma omp simd
    for (int64_t l = 0; l < t.lanes; ++l) out[c * kRows + l] *= decay[l];
  }
  t.put(out, s.value_width, C(1), t.p.out, s.result);
}

template <class T>
void forward(const AttentionShape& s, const AttentionPointers& p) {
  constexpr int64_t kRows = RowTile<T>::kRows;
  const int64_t tiles = s.few ? s.rows : (s.rows + kRows - 1) / kRows, jobs = s.batch * s.heads * tiles;
  parallel_jobs(s.threads, jobs, [&](int64_t job, int worker) {
    char* scratch = static_cast<char*>(p.workspace) + s.scratch.bytes * static_cast<uint64_t>(worker);
    const int64_t head = job / tiles;
    if (s.few) {
      forward_row<T>(s, p, scratch, head / s.heads, head % s.heads, job % tiles);
    } else {
      RowTile<T> t{s, p, scratch};
      t.move(head / s.heads, head % s.heads, job % tiles);
      forward_tile(t);
    }
  });
}

// Adds what the tile's rows give to the gradients of keys [key_begin, key_end), and makes their part of dq, (width,
// lanes). Rows of d_keys and d_values are whole vectors.
template <class T>
HWY_INLINE void backward_tile(RowTile<T>& t, int64_t key_begin, int64_t key_end, Compute<T>* d_keys,
                              Compute<T>* d_values) {
  using C = Compute<T>;
  constexpr int64_t kRows = RowTile<T>::kRows;
  const AttentionShape& s = t.s;
  const int64_t own = t.h / (s.heads / s.own_heads), w = whole_vectors<C>(s.width),
                vw = whole_vectors<C>(s.value_width), lanes = t.lanes;
  C *q_lanes = t.at(s.scratch.q_lanes), *q_rows = t.at(s.scratch.q_rows), *grad_lanes = t.at(s.scratch.grad_lanes),
    *grad_rows = t.at(s.scratch.grad_rows), *dq = t.at(s.scratch.out_lanes), *scores = t.at(s.scratch.scores),
    *ds = t.at(s.scratch.d_scores), *kept = t.at(s.scratch.kept), *lse = t.sums(0), *delta = t.sums(1);
  std::fill(dq, dq + s.width * kRows, C(0));
  key_end = std::min(key_end, t.key_end());
  if (key_begin >= key_end) return;
  t.take(t.p.q, s.q, s.width, static_cast<C>(s.scale), q_lanes, q_rows);
  t.take(t.p.grad, s.grad, s.value_width, C(1), grad_lanes, grad_rows);
  std::fill(lse, lse + lanes, C(0));
  std::fill(delta, delta + lanes, C(0));
  const int64_t sums_at = (t.n * s.heads + t.h) * s.rows + t.first;
  for (int64_t l = 0; l < t.rows; ++l) {
    const T* result = static_cast<const T*>(t.p.result) + s.result.at(t.n, t.h, t.first + l);
    C dot = 0;
    if (s.result.col == 1) {
#pragma omp simd reduction(+ : dot)
      for (int64_t c = 0; c < s.value_width; ++c) dot += grad_rows[l * vw + c] * load(result[c]);
    } else {
      for (int64_t c = 0; c < s.value_width; ++c) dot += grad_rows[l * vw + c] * load(result[c * s.result.col]);
    }
    lse[l] = static_cast<const C*>(t.p.lse)[sums_at + l];
    delta[l] = t.p.grad_lse ? dot - static_cast<const C*>(t.p.grad_lse)[sums_at + l] : dot;
  }
  for (int64_t begin = key_begin; begin < key_end; begin += kKeyTile) {
    const int64_t count = std::min(kKeyTile, key_end - begin);
    const Matrix<C> keys = widened(static_cast<const T*>(t.p.k) + s.k.at(t.n, own, begin), s.k, count, s.width,
                                   t.at(s.scratch.keys)),
                    values = widened(static_cast<const T*>(t.p.v) + s.v.at(t.n, own, begin), s.v, count, s.value_width,
                                     t.at(s.scratch.values));
    t.make_scores(keys, begin, count, scores);
    multiply<C>({values.data, values.row, values.col, grad_lanes, kRows, ds, kRows, count, s.value_width, lanes, true});
    if (s.dropout_p > 0) {
      t.make_kept(begin, count, kept);
      t.scale_by(ds, kept, count);
    }
    for (int64_t c = 0; c < count; ++c) {
      C *x = scores + c * kRows, *d = ds + c * kRows;
#pragma omp simd
      for (int64_t l = 0; l < lanes; ++l) {
        const C weight = exponential(x[l] - lse[l]);
        x[l] = weight;
        d[l] = weight * (d[l] - delta[l]);
      }
    }
    if (s.dropout_p > 0) t.scale_by(scores, kept, count);
    multiply<C>({scores, kRows, 1, grad_rows, vw, d_values + (begin - key_begin) * vw, vw, count, t.rows, vw, false});
    multiply<C>({ds, kRows, 1, q_rows, w, d_keys + (begin - key_begin) * w, w, count, t.rows, w, false});
    multiply<C>({keys.data, keys.col, keys.row, ds, kRows, dq, kRows, s.width, count, lanes, false});
  }
}

template <class T>
HWY_INLINE void put_rows(const Compute<T>* from, int64_t from_row, int64_t rows, int64_t cols, T* to,
                         const MatrixPlaces& places) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) store(to + r * places.row + c * places.col, from[r * from_row + c]);
}

// A job is a head of keys and values, or a part of its keys.
template <class T>
void backward(const AttentionShape& s, const AttentionPointers& p) {
  using C = Compute<T>;
  constexpr int64_t kRows = RowTile<T>::kRows;
  const int64_t tiles = (s.rows + kRows - 1) / kRows, group = s.own_heads == 0 ? 0 : s.heads / s.own_heads,
                w = whole_vectors<C>(s.width), vw = whole_vectors<C>(s.value_width);
  const uint64_t part_size = static_cast<uint64_t>(s.batch * s.heads * s.rows * s.width);
  C* dq_parts = reinterpret_cast<C*>(static_cast<char*>(p.workspace) + s.dq_parts);
  parallel_jobs(s.threads, s.batch * s.own_heads * s.parts, [&](int64_t job, int worker) {
    RowTile<T> t{s, p, static_cast<char*>(p.workspace) + s.scratch.bytes * static_cast<uint64_t>(worker)};
    const int64_t part = job % s.parts, n = job / s.parts / s.own_heads, own = job / s.parts % s.own_heads;
    const int64_t begin = part * s.part_keys, end = std::min(s.keys, begin + s.part_keys);
    C *d_keys = t.at(s.scratch.d_keys), *d_values = t.at(s.scratch.d_values);
    std::fill(d_keys, d_keys + (end - begin) * w, C(0));
    std::fill(d_values, d_values + (end - begin) * vw, C(0));
    for (int64_t h = own * group; h < (own + 1) * group; ++h) {
      for (int64_t tile = 0; tile < tiles; ++tile) {
        t.move(n, h, tile);
        backward_tile(t, begin, end, d_keys, d_values);
        const C *dq = t.at(s.scratch.out_lanes), scale = static_cast<C>(s.scale);
        if (s.parts == 1) {
          t.put(dq, s.width, scale, p.dq, s.dq);
        } else {
          C* to = dq_parts + part_size * static_cast<uint64_t>(part) + ((n * s.heads + h) * s.rows + t.first) * s.width;
          transpose(dq, kRows, s.width, t.rows, to, s.width, scale);
        }
      }
    }
    put_rows<T>(d_keys, w, end - begin, s.width, static_cast<T*>(p.dk) + s.dk.at(n, own, begin), s.dk);
    put_rows<T>(d_values, vw, end - begin, s.value_width, static_cast<T*>(p.dv) + s.dv.at(n, own, begin), s.dv);
  });
  if (s.parts > 1) {
    parallel_each(s.threads, s.batch * s.heads * s.rows, [&](int64_t row) {
      T* to = static_cast<T*>(p.dq) + s.dq.at(row / s.rows / s.heads, row / s.rows % s.heads, row % s.rows);
      C* sum = dq_parts + row * s.width;
      for (int64_t part = 1; part < s.parts; ++part)
        for (int64_t c = 0; c < s.width; ++c) sum[c] += sum[static_cast<int64_t>(part_size) * part + c];
      put_rows<T>(sum, s.width, 1, s.width, to, s.dq);
    });
  }
}

AttentionFn select_attention(bool is_backward, DType dtype) {
  return dispatch_floating(dtype, "attention", [&](auto t) -> AttentionFn {
    using T = decltype(t);
    return is_backward ? backward<T> : forward<T>;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
HWY_EXPORT(select_attention);
namespace {

using plan::KernelQuery;
using plan::Layout;

MatrixPlaces places_of(const TensorSpec& spec) {
  const auto stride = [&](int i) { return spec.shape[i] == 1 ? 0 : spec.strides[i]; };
  // A row of a single column counts as dense.
  return {stride(0), stride(1), stride(2), spec.shape[3] == 1 ? 1 : spec.strides[3]};
}

AttentionShape make_shape(const KernelQuery& q, const PrepareContext& context, bool is_backward) {
  const size_t first = is_backward ? 1 : 0, mask = is_backward ? 6 : 3;
  const TensorSpec &query = q.inputs[first], &key = q.inputs[first + 1], &value = q.inputs[first + 2];
  AttentionShape s;
  s.batch = query.shape[0], s.heads = query.shape[1], s.own_heads = key.shape[1];
  s.rows = query.shape[2], s.keys = key.shape[2], s.width = query.shape[3], s.value_width = value.shape[3];
  s.q = places_of(query), s.k = places_of(key), s.v = places_of(value);
  s.causal = get_attr<bool>(q.attrs, "is_causal");
  s.scale = get_attr<double>(q.attrs, "scale");
  s.dropout_p = get_attr<double>(q.attrs, "dropout_p");
  s.salt = get_attr<int64_t>(q.attrs, "salt");
  if (has_operand(q.inputs, mask)) {
    const TensorSpec& m = q.inputs[mask];
    s.mask = places_of(m);
    if (m.shape[3] == 1) s.mask.col = 0;
    s.mask_kind = m.dtype == DType::kBool  ? MaskKind::kBool
                  : m.dtype == query.dtype ? MaskKind::kOwn
                                           : MaskKind::kCompute;
  }
  const double scores = static_cast<double>(s.batch * s.heads) * static_cast<double>(s.rows * s.keys);
  s.threads = threads_for(context, scores * static_cast<double>(s.width + s.value_width) / 8);
  return s;
}

// Offsets for the widest vectors there are.
void lay_out_scratch(AttentionShape& s, DType dtype, bool is_backward) {
  const int64_t size = dtype == DType::kFloat64 ? 8 : 4, rows = kRowTileBytes / size;
  const auto whole = [&](int64_t n) {
    return align_up(static_cast<uint64_t>(n * size), 64) / static_cast<uint64_t>(size);
  };
  WorkspaceLayout layout;
  const auto matrix = [&](int64_t n, int64_t cols) {
    return layout.add(static_cast<uint64_t>(n) * whole(cols) * static_cast<uint64_t>(size));
  };
  AttentionScratch& a = s.scratch;
  a.q_lanes = matrix(s.width, rows);
  a.out_lanes = matrix(is_backward ? s.width : s.value_width, rows);
  a.scores = matrix(kKeyTile, rows);
  a.kept = matrix(s.dropout_p > 0 ? kKeyTile : 0, rows);
  const bool narrow = dtype_size(dtype) == 2;
  a.keys = matrix(narrow ? kKeyTile : 0, s.width);
  a.values = matrix(narrow ? kKeyTile : 0, s.value_width);
  a.wide = matrix(rows, std::max(s.width, s.value_width));
  a.sums = matrix(4, rows);
  if (is_backward) {
    a.q_rows = matrix(rows, s.width);
    a.grad_lanes = matrix(s.value_width, rows);
    a.grad_rows = matrix(rows, s.value_width);
    a.d_scores = matrix(kKeyTile, rows);
    a.d_keys = matrix(s.part_keys, s.width);
    a.d_values = matrix(s.part_keys, s.value_width);
  }
  a.bytes = layout.bytes();
}

// inputs query, key, value, mask?, state?.
std::unique_ptr<PreparedKernel> prepare_forward(const KernelQuery& q, const PrepareContext& context) {
  AttentionShape s = make_shape(q, context, false);
  s.result = places_of(q.outputs[0]);
  const bool narrow = dtype_size(q.inputs[0].dtype) == 2;  // widened to dense rows
  s.few = s.rows <= kFewRows && (narrow || (s.k.col == 1 && s.v.col == 1));
  lay_out_scratch(s, q.inputs[0].dtype, false);
  const AttentionFn run = HWY_DYNAMIC_DISPATCH(select_attention)(false, q.inputs[0].dtype);
  const uint64_t bytes = s.scratch.bytes * static_cast<uint64_t>(s.threads);
  return make_kernel(bytes, [s, run, specs = q.inputs](const KernelArgs& args) {
    AttentionPointers p{};
    p.q = args.inputs[0], p.k = args.inputs[1], p.v = args.inputs[2];
    p.mask = operand(args, specs, 3), p.state = operand(args, specs, 4);
    p.out = args.outputs[0], p.out_lse = args.outputs[1];
    p.workspace = args.workspace;
    run(s, p);
  });
}

// inputs grad, query, key, value, result, lse, mask?, state?, grad_lse?.
std::unique_ptr<PreparedKernel> prepare_backward(const KernelQuery& q, const PrepareContext& context) {
  constexpr int64_t kJobs = 16;  // that are enough for the cores of a machine
  AttentionShape s = make_shape(q, context, true);
  s.grad = places_of(q.inputs[0]), s.result = places_of(q.inputs[4]);
  s.dq = places_of(q.outputs[0]), s.dk = places_of(q.outputs[1]), s.dv = places_of(q.outputs[2]);
  const int64_t heads = std::max<int64_t>(1, s.batch * s.own_heads), tiles = (s.keys + kKeyTile - 1) / kKeyTile,
                wanted = std::clamp<int64_t>((kJobs + heads - 1) / heads, 1, std::max<int64_t>(1, tiles));
  s.part_keys = (tiles + wanted - 1) / wanted * kKeyTile;
  s.parts = s.keys == 0 ? 1 : (s.keys + s.part_keys - 1) / s.part_keys;
  lay_out_scratch(s, q.inputs[1].dtype, true);
  s.dq_parts = s.scratch.bytes * static_cast<uint64_t>(s.threads);
  const uint64_t size = q.inputs[1].dtype == DType::kFloat64 ? 8 : 4;
  const uint64_t dq_bytes = s.parts == 1 ? 0 : static_cast<uint64_t>(s.parts * numel(q.inputs[1].shape)) * size;
  const AttentionFn run = HWY_DYNAMIC_DISPATCH(select_attention)(true, q.inputs[1].dtype);
  return make_kernel(s.dq_parts + dq_bytes, [s, run, specs = q.inputs](const KernelArgs& args) {
    AttentionPointers p{};
    p.grad = args.inputs[0], p.q = args.inputs[1], p.k = args.inputs[2], p.v = args.inputs[3];
    p.result = args.inputs[4], p.lse = args.inputs[5];
    p.mask = operand(args, specs, 6), p.state = operand(args, specs, 7), p.grad_lse = operand(args, specs, 8);
    p.dq = args.outputs[0], p.dk = args.outputs[1], p.dv = args.outputs[2];
    p.workspace = args.workspace;
    run(s, p);
  });
}

// Sums per row, and the state, lie in order; all else as it comes.
plan::LayoutPreference layouts(const KernelQuery& q) {
  plan::LayoutPreference preference{std::vector<Layout>(q.inputs.size(), Layout::kAny),
                                    std::vector<Layout>(q.outputs.size(), Layout::kAny)};
  for (size_t i = 0; i < q.inputs.size(); ++i)
    if (q.inputs[i].shape.rank() != 4) preference.inputs[i] = Layout::kContiguous;
  for (size_t i = 0; i < q.outputs.size(); ++i)
    if (q.outputs[i].shape.rank() != 4) preference.outputs[i] = Layout::kContiguous;
  return preference;
}

}  // namespace

void add_attention_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "attention", .prepare = prepare_forward, .layouts = layouts});
  table.add(DeviceKind::kCpu, {.op = "attention_backward", .prepare = prepare_backward, .layouts = layouts});
}

}  // namespace sluice::cpu
#endif
