// The loops of batch normalisation. Compiled for each instruction set of the file that includes it; its guard is turned
// for each.
#if defined(SLUICE_KERNELS_CPU_BATCH_NORM_LOOPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_BATCH_NORM_LOOPS_INL_H
#undef SLUICE_KERNELS_CPU_BATCH_NORM_LOOPS_INL_H
#else
#define SLUICE_KERNELS_CPU_BATCH_NORM_LOOPS_INL_H
#endif

#include <algorithm>
#include <cmath>

#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/norm/batch_norm.h"
#include "kernels/cpu/norm/channel_lanes-inl.h"
#include "kernels/cpu/strides/strided.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {

// The affine operand of channel c, or `fallback`.
template <class T>
HWY_INLINE Compute<T> affine(const void* values, bool wide, int64_t c, Compute<T> fallback) {
  return PerChannel{values, wide}.at<T>(c, fallback);
}

// Calls f(offset, {runs, n}, channel) for what lies side by side of some rows and channels: rows of all channels, or,
// where activations are contiguous, positions of one channel. A call has many runs, since these may be short.
struct Runs {
  int64_t count, n;
};
template <class F>
HWY_INLINE void for_runs(const BatchNorm& b, int64_t begin, int64_t end, int64_t first, int64_t last, const F& f) {
  if (b.positions == 0) return f(begin * b.channels, Runs{end - begin, b.channels}, int64_t{0});
  for (int64_t r = begin; r < end;) {
    const int64_t image = r / b.positions, at = r % b.positions, n = std::min(b.positions - at, end - r);
    for (int64_t c = first; c < last; ++c) f((image * b.channels + c) * b.positions + at, Runs{1, n}, c);
    r += n;
  }
}

// sum(part, first, last), then finish(first, last), then apply(begin, end, first, last), of channels [first, last) and
// of rows [begin, end). Few channels after few, while their values are in a cache, if that keeps the threads busy.
template <class Sum, class Finish, class Apply>
void in_two_passes(const BatchNorm& b, const Sum& sum, const Finish& finish, const Apply& apply) {
  const int64_t width = b.positions ? kLanes : b.channels, tiles = b.positions ? (b.channels + width - 1) / width : 1;
  const auto last = [&](int64_t tile) { return std::min((tile + 1) * width, b.channels); };
  if (tiles % b.threads == 0 || tiles >= 4 * b.threads) {
    parallel_ranges(b.threads, tiles, 1, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) {
        for (int64_t part = 0; part < b.parts; ++part) sum(part, tile * width, last(tile));
        finish(tile * width, last(tile));
        apply(0, b.rows, tile * width, last(tile));
      }
    });
    return;
  }
  parallel_ranges(b.threads, tiles * b.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum(i % b.parts, i / b.parts * width, last(i / b.parts));
  });
  finish(0, b.channels);
  parallel_ranges(b.threads, b.rows, 1, [&](int64_t begin, int64_t end) { apply(begin, end, 0, b.channels); });
}

// Runs: (x - mean) * scale + shift; then plus the residual, then relu, where there are these. Coefficients are one of
// all (kOne) or one of each of a run.
template <class T, bool kOne, bool kResidual, bool kRelu>
void normalize_runs(const T* from, const T* residual, T* to, Runs runs, const Compute<T>* mean, const Compute<T>* scale,
                    const Compute<T>* shift) {
  using C = Compute<T>;
  const C mean_of_all = *mean, scale_of_all = *scale, shift_of_all = *shift;
  for (int64_t r = 0; r < runs.count; ++r) {
    const int64_t at = r * runs.n;
#pragma GCC ivdep
    for (int64_t i = 0; i < runs.n; ++i) {
      C v = kOne ? (load(from[at + i]) - mean_of_all) * scale_of_all + shift_of_all
                 : (load(from[at + i]) - mean[i]) * scale[i] + shift[i];
      if constexpr (kResidual) {
        T rounded;
        store(&rounded, v);
        v = load(rounded) + load(residual[at + i]);
      }
      if constexpr (kRelu) v = v < C(0) ? C(0) : v;
      store(to + at + i, v);
    }
  }
}
template <class T, bool kOne>
auto normalize_runs_with(bool residual, bool relu) {
  return residual ? (relu ? normalize_runs<T, kOne, true, true> : normalize_runs<T, kOne, true, false>)
                  : (relu ? normalize_runs<T, kOne, false, true> : normalize_runs<T, kOne, false, false>);
}
template <class T>
void normalize(const BatchNorm& b, const BatchNormPointers& p, const Compute<T>* mean, const Compute<T>* scale,
               const Compute<T>* shift, int64_t begin, int64_t end, int64_t first, int64_t last) {
  const T *x = static_cast<const T*>(p.x), *residual = static_cast<const T*>(p.residual);
  T* y = static_cast<T*>(p.y);
  const auto run = b.positions ? normalize_runs_with<T, true>(residual != nullptr, b.relu)
                               : normalize_runs_with<T, false>(residual != nullptr, b.relu);
  for_runs(b, begin, end, first, last, [&](int64_t at, Runs runs, int64_t c) {
    run(x + at, residual ? residual + at : nullptr, y + at, runs, mean + c, scale + c, shift + c);
  });
}

// Updates running statistics: kept * running + taken * (correction * batch).
template <class C>
HWY_INLINE void move_running(const BatchNorm& b, int64_t first, int64_t last, const void* running, const C* batch,
                             double correction, void* next) {
  const C* from = static_cast<const C*>(running);
  const C kept = static_cast<C>(b.kept), taken = static_cast<C>(b.taken), factor = static_cast<C>(correction);
  for (int64_t c = first; c < last; ++c) static_cast<C*>(next)[c] = from[c] * kept + batch[c] * factor * taken;
}

// Adds the mean and the sum of squared deviations of `n` more rows to those of `count` (Chan et al.). T is a number of
// a channel, or Lanes.
template <class T>
HWY_INLINE void add_block(const T* x, int64_t n, int64_t channels, int64_t count, Compute<T>* sum, Compute<T>* square,
                          InDouble<T>* mean, InDouble<T>* m2) {
  using C = Compute<T>;
  std::fill(sum, sum + channels, C{});
  for (int64_t r = 0; r < n; ++r) {
    const T* row = x + r * channels;
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) sum[c] += load(row[c]);
  }
  for (int64_t c = 0; c < channels; ++c) sum[c] /= static_cast<Scalar<C>>(n);
  std::fill(square, square + channels, C{});
  for (int64_t r = 0; r < n; ++r) {
    const T* row = x + r * channels;
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) {
      const C d = load(row[c]) - sum[c];
      square[c] += d * d;
    }
  }
  const double total = static_cast<double>(count + n), share = static_cast<double>(n) / total;
#pragma GCC ivdep
  for (int64_t c = 0; c < channels; ++c) {
    const InDouble<T> delta = in_double(sum[c]) - mean[c];
    mean[c] += delta * share;
    m2[c] += in_double(square[c]) + delta * delta * share * static_cast<double>(count);
  }
}

// The mean and the sum of squared deviations of a part's rows.
template <class T>
void sum_part(const BatchNorm& b, const BatchNormPointers& p, int64_t part, int64_t first, int64_t last, double* mean,
              double* m2) {
  using C = Compute<T>;
  const T* x = static_cast<const T*>(p.x);
  const int64_t begin = b.part_begin(part), end = b.part_begin(part + 1), block = b.block();
  if (b.positions) {
    Lanes<double> of_lanes[2] = {};
    Lanes<C> rows[BatchNorm::kMostRows], sum, square;
    const int64_t blocks = BatchNorm::kMostRows / block * block;
    for (int64_t r = begin; r < end; r += blocks) {
      const int64_t n = std::min(blocks, end - r);
      turn_elements(b.positions, b.channels, first, last, r, n, x, rows);
      for (int64_t i = 0; i < n; i += block)
        add_block(rows + i, std::min(block, n - i), 1, r + i - begin, &sum, &square, of_lanes, of_lanes + 1);
    }
    put_lanes(of_lanes[0], first, last, mean);
    put_lanes(of_lanes[1], first, last, m2);
    return;
  }
  std::fill(mean, mean + b.channels, 0.0);
  std::fill(m2, m2 + b.channels, 0.0);
  C* local = reinterpret_cast<C*>(static_cast<std::byte*>(p.workspace) + b.sums_bytes()) + 2 * part * b.channels;
  for (int64_t r = begin; r < end; r += block)
    add_block(x + r * b.channels, std::min(block, end - r), b.channels, r - begin, local, local + b.channels, mean, m2);
}

template <class T>
void train(const BatchNorm& b, const BatchNormPointers& p) {
  using C = Compute<T>;
  const int64_t channels = b.channels;
  C *mean = static_cast<C*>(p.out_mean), *var = static_cast<C*>(p.out_var);
  double* sums = static_cast<double*>(p.workspace);                // per part: means, m2
  C* scale = reinterpret_cast<C*>(sums + 2 * b.parts * channels);  // weight / std
  C* shift = scale + channels;
  const auto finish = [&](int64_t first, int64_t last) {
    double *m = sums, *m2 = sums + channels;
    for (int64_t part = 1; part < b.parts; ++part) {
      const double *pm = sums + 2 * part * channels, *pm2 = pm + channels;
      const double before = static_cast<double>(b.part_begin(part)),
                   more = static_cast<double>(b.part_begin(part + 1)) - before;
      const double share = more / (before + more);
      for (int64_t c = first; c < last; ++c) {
        const double delta = pm[c] - m[c];
        m[c] += delta * share;
        m2[c] += pm2[c] + delta * delta * share * before;
      }
    }
    for (int64_t c = first; c < last; ++c) {
      const double v = m2[c] / static_cast<double>(b.rows);
      mean[c] = static_cast<C>(m[c]);
      var[c] = static_cast<C>(v);
      scale[c] = affine<T>(p.weight, b.float_weight, c, C(1)) * static_cast<C>(1 / std::sqrt(v + b.eps));
      shift[c] = affine<T>(p.bias, b.float_bias, c, C(0));
    }
    if (p.running_mean) {
      move_running(b, first, last, p.running_mean, mean, 1, p.next_mean);
      move_running(b, first, last, p.running_var, var, b.correction, p.next_var);
    }
  };
  in_two_passes(
      b,
      [&](int64_t part, int64_t first, int64_t last) {
        sum_part<T>(b, p, part, first, last, sums + 2 * part * channels, sums + (2 * part + 1) * channels);
      },
      finish,
      [&](int64_t begin, int64_t end, int64_t first, int64_t last) {
        normalize<T>(b, p, mean, scale, shift, begin, end, first, last);
      });
}

template <class T>
void infer(const BatchNorm& b, const BatchNormPointers& p) {
  using C = Compute<T>;
  const int64_t channels = b.channels;
  C* mean = static_cast<C*>(p.workspace);
  inference_coefficients<T>(
      {{p.mean, b.float_mean}, {p.var, b.float_var}, {p.weight, b.float_weight}, {p.bias, b.float_bias}, b.eps},
      channels, mean);
  parallel_ranges(b.threads, b.rows, 1, [&](int64_t begin, int64_t end) {
    normalize<T>(b, p, mean, mean + channels, mean + 2 * channels, begin, end, 0, channels);
  });
}

// The source of dy: it is given, or 0 where a result is not above 0; or that is written, too, and then read.
enum class Grad { kGiven, kMasked, kKept };

// dy of element i, which is kept where it is to be.
template <class T, Grad kGrad>
HWY_INLINE Compute<T> grad_of(const T* dy, const T* result, T* masked, int64_t i) {
  using C = Compute<T>;
  C g = load(dy[i]);
  if constexpr (kGrad != Grad::kGiven) g = load(result[i]) <= C(0) ? C(0) : g;
  if constexpr (kGrad == Grad::kKept) store(masked + i, g);
  return g;
}

// Adds a row's dy, and dy * (x - mean).
template <class C>
HWY_INLINE void add_products(const C& x, const C& dy, const C& mean, C& sum, C& dot) {
  sum += dy;
  dot += dy * (x - mean);
}

// The sums of dy and of dy * (x - mean) over a part's rows.
template <class T, Grad kGrad>
void dot_part(const BatchNorm& b, const BatchNormPointers& p, const Compute<T>* mean, int64_t part, int64_t first,
              int64_t last, double* total, double* dot) {
  using C = Compute<T>;
  const T *x = static_cast<const T*>(p.x), *dy = static_cast<const T*>(p.grad), *y = static_cast<const T*>(p.result);
  T* masked = static_cast<T*>(p.masked);
  const auto grad_at = [&](int64_t i) { return grad_of<T, kGrad>(dy, y, masked, i); };
  const int64_t begin = b.part_begin(part), end = b.part_begin(part + 1), block = b.block();
  if (b.positions) {
    constexpr int64_t kRows = BatchNorm::kMostRows / 2;
    Lanes<double> total_of_lanes = {}, dot_of_lanes = {};
    Lanes<C> x_rows[kRows], dy_rows[kRows], mean_of_lanes = get_lanes(mean, first, last), s = {}, t = {};
    for (int64_t r = begin; r < end; r += kRows) {
      const int64_t n = std::min(kRows, end - r);
      turn_elements(b.positions, b.channels, first, last, r, n, x, x_rows);
      if constexpr (kGrad == Grad::kGiven)
        turn_elements(b.positions, b.channels, first, last, r, n, dy, dy_rows);
      else
        turn_lines(b.positions, b.channels, first, last, r, n, dy_rows, [&](int64_t at, int64_t count, C* to) {
#pragma GCC ivdep
          for (int64_t i = 0; i < count; ++i) to[i] = grad_at(at + i);
        });
      for (int64_t i = 0; i < n;) {
        const int64_t left = block - (r + i - begin) % block, block_end = std::min(i + left, n);
        for (; i < block_end; ++i) add_products(x_rows[i], dy_rows[i], mean_of_lanes, s, t);
        if ((r + i - begin) % block != 0 && r + i < end) continue;  // the block goes on
        total_of_lanes += in_double(s);
        dot_of_lanes += in_double(t);
        s = t = {};
      }
    }
    put_lanes(total_of_lanes, first, last, total);
    put_lanes(dot_of_lanes, first, last, dot);
    return;
  }
  const int64_t channels = b.channels;
  std::fill(total, total + channels, 0.0);
  std::fill(dot, dot + channels, 0.0);
  C* s = reinterpret_cast<C*>(static_cast<std::byte*>(p.workspace) + b.sums_bytes()) + 2 * part * channels;
  C* t = s + channels;
  for (int64_t r0 = begin; r0 < end; r0 += block) {
    std::fill(s, s + 2 * channels, C(0));
    for (int64_t r = r0; r < std::min(r0 + block, end); ++r) {
#pragma GCC ivdep
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t i = r * channels + c;
        add_products(load(x[i]), grad_at(i), mean[c], s[c], t[c]);
      }
    }
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) {
      total[c] += static_cast<double>(s[c]);
      dot[c] += static_cast<double>(t[c]);
    }
  }
}

// Runs of dx, with coefficients as normalize_runs has them.
template <class T, bool kOne, Grad kGrad>
void differentiate_runs(const T* x, const T* dy, const T* result, T* dx, Runs runs, const Compute<T>* a,
                        const Compute<T>* k, const Compute<T>* d, const Compute<T>* mean) {
  using C = Compute<T>;
  const C a_of_all = *a, k_of_all = *k, d_of_all = *d, mean_of_all = *mean;
  for (int64_t r = 0; r < runs.count; ++r) {
    const int64_t at = r * runs.n;
#pragma GCC ivdep
    for (int64_t i = 0; i < runs.n; ++i) {
      const C g = grad_of<T, kGrad>(dy, result, nullptr, at + i), x_i = load(x[at + i]);
      store(dx + at + i, kOne ? a_of_all * g + (k_of_all * (x_i - mean_of_all) + d_of_all)
                              : a[i] * g + (k[i] * (x_i - mean[i]) + d[i]));
    }
  }
}

// dx = weight/std * (dy - mean(dy) - x_hat * mean(dy * x_hat)) as a * dy + k * (x - mean) + d per channel.
template <class T, Grad kGrad>
void backward(const BatchNorm& b, const BatchNormPointers& p) {
  using C = Compute<T>;
  const int64_t channels = b.channels;
  const T *x = static_cast<const T*>(p.x), *result = static_cast<const T*>(p.result);
  const T* dy = static_cast<const T*>(kGrad == Grad::kKept ? p.masked : p.grad);  // of the second pass
  T* dx = static_cast<T*>(p.y);
  double* sums = static_cast<double*>(p.workspace);  // per part: sum of dy, sum of dy * (x - mean)
  C* a = reinterpret_cast<C*>(sums + 2 * b.parts * channels);
  C *k = a + channels, *d = k + channels, *mean = d + channels;
  for (int64_t c = 0; c < channels; ++c) mean[c] = affine<T>(p.mean, b.float_mean, c, C(0));
  const auto finish = [&](int64_t first, int64_t last) {
    double *total = sums, *dot = sums + channels;
    for (int64_t part = 1; part < b.parts; ++part) {
      for (int64_t c = first; c < last; ++c) {
        total[c] += sums[2 * part * channels + c];
        dot[c] += sums[(2 * part + 1) * channels + c];
      }
    }
    const double n = static_cast<double>(b.rows);
    for (int64_t c = first; c < last; ++c) {
      const double inv_std = 1 / std::sqrt(static_cast<double>(affine<T>(p.var, b.float_var, c, C(1))) + b.eps),
                   dw = dot[c] * inv_std, db = total[c];
      const double w = static_cast<double>(affine<T>(p.weight, b.float_weight, c, C(1))) * inv_std;
      static_cast<C*>(p.d_weight)[c] = static_cast<C>(dw);
      static_cast<C*>(p.d_bias)[c] = static_cast<C>(db);
      a[c] = static_cast<C>(w);
      k[c] = static_cast<C>(-w * inv_std * dw / n);
      d[c] = static_cast<C>(-w * db / n);
    }
  };
  constexpr Grad kRead = kGrad == Grad::kMasked ? Grad::kMasked : Grad::kGiven;
  const auto run = b.positions ? differentiate_runs<T, true, kRead> : differentiate_runs<T, false, kRead>;
  in_two_passes(
      b,
      [&](int64_t part, int64_t first, int64_t last) {
        dot_part<T, kGrad>(b, p, mean, part, first, last, sums + 2 * part * channels, sums + (2 * part + 1) * channels);
      },
      finish,
      [&](int64_t begin, int64_t end, int64_t first, int64_t last) {
        for_runs(b, begin, end, first, last, [&](int64_t at, Runs runs, int64_t c) {
          run(x + at, dy + at, result ? result + at : nullptr, dx + at, runs, a + c, k + c, d + c, mean + c);
        });
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();
#endif
