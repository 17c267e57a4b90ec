// Panels of lines, a line per lane: element k of all of them is a vector of real parts and one of imaginary ones. One
// line alone is a panel of one lane, whose vectors are numbers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fourier/fourier_panels.cpp"

#include "kernels/cpu/fourier/fourier_panels.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/math/simd_foreach.h"
//
#include "kernels/cpu/math/lane_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class C>
struct PanelOf {
  typedef C Type __attribute__((vector_size(kVectorBytes), may_alias));
};

template <class V>
struct Pair {
  V re, im;
};
template <class V>
HWY_INLINE Pair<V> operator+(const Pair<V>& a, const Pair<V>& b) {
  return {a.re + b.re, a.im + b.im};
}
template <class V>
HWY_INLINE Pair<V> operator-(const Pair<V>& a, const Pair<V>& b) {
  return {a.re - b.re, a.im - b.im};
}
template <class V, class C>
HWY_INLINE Pair<V> times(const Pair<V>& a, const std::complex<C>& w) {
  return {a.re * w.real() - a.im * w.imag(), a.re * w.imag() + a.im * w.real()};
}
template <class V, class C>
HWY_INLINE Pair<V> scaled(const Pair<V>& a, C factor) {
  return {a.re * factor, a.im * factor};
}
// Times -i, or i.
template <class V>
HWY_INLINE Pair<V> turned(const Pair<V>& a, bool inverse) {
  return inverse ? Pair<V>{-a.im, a.re} : Pair<V>{a.im, -a.re};
}
template <class V>
HWY_INLINE Pair<V> conjugate(const Pair<V>& a) {
  return {a.re, -a.im};
}

// The transform of a[0] to a[radix - 1] in place.
template <int kRadix, class V, class C>
HWY_INLINE void transform_few(Pair<V>* a, bool inverse, [[maybe_unused]] const std::complex<C>* roots) {
  if constexpr (kRadix == 2) {
    const Pair<V> b = a[0] - a[1];
    a[0] = a[0] + a[1];
    a[1] = b;
  } else if constexpr (kRadix == 4) {
    const Pair<V> even = a[0] + a[2], odd = a[1] + a[3], low = a[0] - a[2], high = turned(a[1] - a[3], inverse);
    a[0] = even + odd, a[1] = low + high, a[2] = even - odd, a[3] = low - high;
  } else if constexpr (kRadix == 3) {
    const Pair<V> sum = a[1] + a[2], middle = a[0] - scaled(sum, C(0.5));
    const Pair<V> side = scaled(turned(a[1] - a[2], inverse), C(0.86602540378443864676));
    a[0] = a[0] + sum, a[1] = middle + side, a[2] = middle - side;
  } else {
    static_assert(kRadix == 5);
    constexpr C c1 = C(0.30901699437494742410), c2 = C(-0.80901699437494742410), s1 = C(0.95105651629515357212),
                s2 = C(0.58778525229247312917);
    const Pair<V> near = a[1] + a[4], far = a[2] + a[3];
    const Pair<V> x = turned(a[1] - a[4], inverse), z = turned(a[2] - a[3], inverse);
    const Pair<V> first = a[0] + scaled(near, c1) + scaled(far, c2), second = a[0] + scaled(near, c2) + scaled(far, c1);
    const Pair<V> beside = scaled(x, s1) + scaled(z, s2), across = scaled(x, s2) - scaled(z, s1);
    a[0] = a[0] + near + far;
    a[1] = first + beside, a[4] = first - beside, a[2] = second + across, a[3] = second - across;
  }
}

// Elements p + lines * j of a line, j < radix, are transformed, turned, and written to radix * p + k.
template <int kRadix, class V, class C>
void run_stage(const typename FourierPlan<C>::Stage& stage, bool inverse, const Pair<V>* x, Pair<V>* y) {
  const int64_t s = stage.stride, m = stage.lines;
  for (int64_t p = 0; p < m; ++p) {
    const std::complex<C>* w = stage.twiddles.data() + p * (kRadix - 1);
    const Pair<V>* in = x + s * p;
    Pair<V>* out = y + s * kRadix * p;
    for (int64_t q = 0; q < s; ++q) {
      Pair<V> a[kRadix];
      for (int j = 0; j < kRadix; ++j) a[j] = in[q + s * m * j];
      transform_few<kRadix>(a, inverse, stage.roots.data());
      out[q] = a[0];
      for (int k = 1; k < kRadix; ++k) out[q + s * k] = times(a[k], w[k - 1]);
    }
  }
}

// A stage of any odd radix: the sum of elements j and radix - j is taken times cosines, and the difference times sines.
template <class V, class C>
void run_odd_stage(const typename FourierPlan<C>::Stage& stage, const Pair<V>* x, Pair<V>* y) {
  const int64_t r = stage.radix, s = stage.stride, m = stage.lines, pairs = r / 2;
  Pair<V> sums[kLargestFactor / 2], differences[kLargestFactor / 2];
  for (int64_t p = 0; p < m; ++p) {
    const std::complex<C>* w = stage.twiddles.data() + p * (r - 1);
    const Pair<V>* in = x + s * p;
    Pair<V>* out = y + s * r * p;
    for (int64_t q = 0; q < s; ++q) {
      Pair<V> total = in[q];
      for (int64_t j = 0; j < pairs; ++j) {
        const Pair<V> near = in[q + s * m * (j + 1)], far = in[q + s * m * (r - j - 1)];
        sums[j] = near + far, differences[j] = near - far;
        total = total + sums[j];
      }
      out[q] = total;
      for (int64_t k = 1; k <= pairs; ++k) {
        Pair<V> even = in[q], odd{};
        for (int64_t j = 0, at = k; j < pairs; ++j, at += at + k < r ? k : k - r) {  // at: (j + 1) * k modulo r
          even = even + scaled(sums[j], stage.roots[static_cast<size_t>(at)].real());
          odd = odd + scaled(differences[j], stage.roots[static_cast<size_t>(at)].imag());
        }
        const Pair<V> side = turned(odd, true);
        out[q + s * k] = times(even + side, w[k - 1]);
        out[q + s * (r - k)] = times(even - side, w[r - k - 1]);
      }
    }
  }
}

// Returns where the result is: in `line` or in `spare`.
template <class V, class C>
Pair<V>* run_stages(const FourierPlan<C>& plan, Pair<V>* line, Pair<V>* spare) {
  for (const auto& stage : plan.stages) {
    switch (stage.radix) {
      case 2: run_stage<2, V, C>(stage, plan.inverse, line, spare); break;
      case 3: run_stage<3, V, C>(stage, plan.inverse, line, spare); break;
      case 4: run_stage<4, V, C>(stage, plan.inverse, line, spare); break;
      case 5: run_stage<5, V, C>(stage, plan.inverse, line, spare); break;
      default: run_odd_stage<V, C>(stage, line, spare);
    }
    std::swap(line, spare);
  }
  return line;
}

template <class V, class C>
Pair<V>* transform(const FourierPlan<C>& plan, Pair<V>* line, Pair<V>* spare) {
  if (!plan.forth) return run_stages<V, C>(plan, line, spare);
  const auto m = static_cast<int64_t>(plan.spectrum.size());
  for (int64_t k = 0; k < plan.n; ++k) spare[k] = times(line[k], plan.chirp[k]);
  std::fill(spare + plan.n, spare + m, Pair<V>{});
  Pair<V>* mixed = run_stages<V, C>(*plan.forth, spare, spare + m);
  for (int64_t k = 0; k < m; ++k) mixed[k] = times(mixed[k], plan.spectrum[k]);
  mixed = run_stages<V, C>(*plan.back, mixed, mixed == spare ? spare + m : spare);
  for (int64_t k = 0; k < plan.n; ++k) line[k] = times(mixed[k], plan.chirp[k]);
  return line;
}

// --- Lines in and out. Numbers are of E in memory, and of C in panels.

template <class V, class C>
constexpr int64_t kLanes = static_cast<int64_t>(sizeof(V) / sizeof(C));

// How far the lines' first numbers are apart, in numbers of E; 0 where they do not lie in even distances.
template <class E, class P>
int64_t distance_of(P* const* lines, int count) {
  const auto at = [&](int l) { return static_cast<const E*>(lines[l]); };
  const int64_t distance = count > 1 ? at(1) - at(0) : 0;
  for (int l = 2; l < count; ++l)
    if (at(l) - at(l - 1) != distance) return 0;
  return distance;
}

// `numbers` numbers of each line, `parts` (1 or 2) of them next to each other and `step` pairs or numbers apart. A
// panel has a row of lanes per number, of which `stride` rows make an element.
template <class E, class V, class C>
void load_lines(const FourierLinesAt& at, int64_t numbers, int parts, int64_t stride, C* panel) {
  constexpr int64_t lanes = kLanes<V, C>;
  if (at.count < lanes) std::fill(panel, panel + (numbers / parts) * stride * lanes, C(0));
  if constexpr (std::is_same_v<E, C>) {
    const int64_t distance = distance_of<E>(at.in, at.count);
    if (at.in_step == 1 && stride == parts && (distance != 0 || at.count == 1)) {
      transpose<C>(static_cast<const E*>(at.in[0]), distance, at.count, numbers, panel, lanes, C(1));
      return;
    }
  }
  for (int64_t i = 0; i < numbers / parts; ++i)
    for (int part = 0; part < parts; ++part)
      for (int l = 0; l < at.count; ++l)
        panel[(i * stride + part) * lanes + l] =
            static_cast<C>(static_cast<const E*>(at.in[l])[i * at.in_step * parts + part]);
}

template <class E, class V, class C>
void store_lines(const FourierLinesAt& at, int64_t numbers, int parts, int64_t stride, const C* panel, C scale) {
  constexpr int64_t lanes = kLanes<V, C>;
  if constexpr (std::is_same_v<E, C>) {
    const int64_t distance = distance_of<E>(at.out, at.count);
    if (at.out_step == 1 && stride == parts && (distance != 0 || at.count == 1)) {
      transpose<C>(panel, lanes, numbers, at.count, static_cast<E*>(at.out[0]), distance, scale);
      return;
    }
  }
  for (int64_t i = 0; i < numbers / parts; ++i)
    for (int part = 0; part < parts; ++part)
      for (int l = 0; l < at.count; ++l)
        static_cast<E*>(at.out[l])[i * at.out_step * parts + part] =
            static_cast<E>(panel[(i * stride + part) * lanes + l] * scale);
}

// Makes the first half of the transform of x from the transform of x[2j] + i x[2j + 1].
template <class V, class C>
void split_pairs(const FourierJob<C>& job, const Pair<V>* z, Pair<V>* y) {
  const int64_t h = job.n / 2;
  for (int64_t k = 0; k <= h; ++k) {
    const Pair<V> a = z[k == h ? 0 : k], b = conjugate(z[k == 0 ? 0 : h - k]);
    const Pair<V> even = scaled(a + b, C(0.5)), odd = turned(scaled(a - b, C(0.5)), false);
    y[k] = even + times(odd, job.turns[k]);
    if (job.inverse) y[k] = conjugate(y[k]);
  }
}

// The inverse of that, but for a factor of n / 2: what the inverse transform makes x[2j] + i x[2j + 1] of.
template <class V, class C>
void join_pairs(const FourierJob<C>& job, Pair<V>* x, Pair<V>* z) {
  const int64_t h = job.n / 2;
  x[0].im = x[h].im = V{};  // as if they were real
  for (int64_t k = 0; k < h; ++k) {
    const Pair<V> a = job.inverse ? x[k] : conjugate(x[k]), b = job.inverse ? conjugate(x[h - k]) : x[h - k];
    z[k] = a + b + turned(times(a - b, std::conj(job.turns[k])), true);
  }
}

template <class E, class V, class C>
void run(const FourierJob<C>& job, const FourierLinesAt& at, C* workspace) {
  auto* x = reinterpret_cast<Pair<V>*>(workspace);
  Pair<V>*y = x + job.n + 1, *spare = y + job.n + 1;
  const auto numbers = [](Pair<V>* p) { return reinterpret_cast<C*>(p); };
  const int64_t n = job.n, half = n / 2;
  switch (job.kind) {
    case FourierKind::kComplex: {
      load_lines<E, V, C>(at, 2 * n, 2, 2, numbers(x));
      store_lines<E, V, C>(at, 2 * n, 2, 2, numbers(transform<V, C>(job.plan, x, spare)), job.scale);
      return;
    }
    case FourierKind::kReal: {
      Pair<V>* z = y;
      if (job.halved) {
        load_lines<E, V, C>(at, n, 1, 1, numbers(x));  // side by side they are pairs
        split_pairs<V, C>(job, transform<V, C>(job.plan, x, spare), y);
      } else {
        std::fill(x, x + n, Pair<V>{});
        load_lines<E, V, C>(at, n, 1, 2, numbers(x));
        z = transform<V, C>(job.plan, x, spare);
        for (int64_t k = 0; job.inverse && k <= half; ++k) z[k] = conjugate(z[k]);
      }
      store_lines<E, V, C>(at, 2 * (half + 1), 2, 2, numbers(z), job.scale);
      return;
    }
    case FourierKind::kHermitian: {
      load_lines<E, V, C>(at, 2 * (half + 1), 2, 2, numbers(x));
      if (job.halved) {
        join_pairs<V, C>(job, x, y);
        store_lines<E, V, C>(at, n, 1, 1, numbers(transform<V, C>(job.plan, y, spare)), job.scale);
        return;
      }
      x[0].im = V{};
      for (int64_t k = 1; k <= half; ++k) {
        if (!job.inverse) x[k] = conjugate(x[k]);
        x[n - k] = conjugate(x[k]);
      }
      store_lines<E, V, C>(at, n, 1, 2, numbers(transform<V, C>(job.plan, x, spare)), job.scale);
      return;
    }
  }
}

template <class E, class C>
FourierTransform<C> select(bool panel) {
  using V = typename PanelOf<C>::Type;
  static_assert(kVectorLanes<C> <= kMostPanelLines);
  if (panel) return {&run<E, V, C>, kVectorLanes<C>};
  return {&run<E, C, C>, 1};
}
FourierTransform<float> select_float(bool panel) { return select<float, float>(panel); }
FourierTransform<double> select_double(bool panel, bool of_floats) {
  return of_floats ? select<float, double>(panel) : select<double, double>(panel);
}
std::complex<float>* line_of_floats(const FourierPlan<float>& plan, std::complex<float>* line,
                                    std::complex<float>* spare) {
  return reinterpret_cast<std::complex<float>*>(
      transform<float, float>(plan, reinterpret_cast<Pair<float>*>(line), reinterpret_cast<Pair<float>*>(spare)));
}
std::complex<double>* line_of_doubles(const FourierPlan<double>& plan, std::complex<double>* line,
                                      std::complex<double>* spare) {
  return reinterpret_cast<std::complex<double>*>(
      transform<double, double>(plan, reinterpret_cast<Pair<double>*>(line), reinterpret_cast<Pair<double>*>(spare)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
namespace {

HWY_EXPORT(select_float);
HWY_EXPORT(select_double);
HWY_EXPORT(line_of_floats);
HWY_EXPORT(line_of_doubles);

}  // namespace

FourierTransform<float> float_transform(bool panel) { return HWY_DYNAMIC_DISPATCH(select_float)(panel); }
FourierTransform<double> double_transform(bool panel, bool of_floats) {
  return HWY_DYNAMIC_DISPATCH(select_double)(panel, of_floats);
}

void transform_line(const FourierPlan<float>& plan, std::complex<float>* line) {
  std::vector<std::complex<float>> spare(static_cast<size_t>(plan.scratch()));
  const auto* found = HWY_DYNAMIC_DISPATCH(line_of_floats)(plan, line, spare.data());
  if (found != line) std::copy(found, found + plan.n, line);
}
void transform_line(const FourierPlan<double>& plan, std::complex<double>* line) {
  std::vector<std::complex<double>> spare(static_cast<size_t>(plan.scratch()));
  const auto* found = HWY_DYNAMIC_DISPATCH(line_of_doubles)(plan, line, spare.data());
  if (found != line) std::copy(found, found + plan.n, line);
}

}  // namespace sluice::cpu
#endif
