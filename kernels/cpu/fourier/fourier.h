#pragma once
// The discrete Fourier transform of lines of complex or real numbers, of any length.
#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice::cpu {

// The largest prime that has a stage: those of larger ones cost more than a convolution.
inline constexpr int64_t kLargestFactor = 61;

// How lines of a length are transformed in a direction: plain data.
//
// A length of small prime factors goes through one stage per factor, each of which reads lines of one array and writes
// those of the other (Stockham's order, which needs no permutation). Any other length n is a convolution with a chirp,
// exp(-i pi k^2 / n), made by transforms of a power of two (Bluestein's way).
template <class T>
struct FourierPlan {
  using Complex = std::complex<T>;
  FourierPlan(int64_t n, bool inverse);

  static bool has_small_factors(int64_t n);
  int64_t scratch() const;  // elements that a transform writes beside the line

  struct Stage {
    int64_t radix, lines, stride;          // of each line `radix` elements, `lines` times, in groups of `stride`
    std::vector<Complex> twiddles, roots;  // (radix - 1) per line; of unity
  };
  int64_t n;
  bool inverse;
  std::vector<Stage> stages;
  std::vector<Complex> chirp, spectrum;  // of lengths without small factors
  std::unique_ptr<FourierPlan> forth, back;
};

extern template struct FourierPlan<float>;
extern template struct FourierPlan<double>;

// The input and output of a transform: complex numbers both; n real ones and the first n / 2 + 1 of their transform; or
// these and n real ones. Transforms of an even number of real ones are made by one of half the length, of them as
// pairs.
enum class FourierKind { kComplex, kReal, kHermitian };

template <class C>
struct FourierJob {
  FourierJob(FourierKind kind, int64_t n, bool inverse, double scale);

  FourierKind kind;
  int64_t n;  // of the whole transform
  bool inverse;
  C scale;
  bool halved;                         // by pairs
  FourierPlan<C> plan;                 // of n, or of n / 2
  std::vector<std::complex<C>> turns;  // exp(-2 pi i k / n) up to k = n / 2, where by pairs

  int64_t inputs() const { return kind == FourierKind::kHermitian ? n / 2 + 1 : n; }
  int64_t outputs() const { return kind == FourierKind::kReal ? n / 2 + 1 : n; }
  // The workspace of a line, in complex numbers of C.
  int64_t workspace() const { return 2 * (n + 1) + plan.scratch(); }
};

// Lines that are transformed at once at most, a line per lane of a panel.
inline constexpr int64_t kMostPanelLines = 16;

// The starts of up to so many lines, and the distance of their elements, in elements.
struct FourierLinesAt {
  const void* in[kMostPanelLines];
  void* out[kMostPanelLines];
  int64_t in_step, out_step;
  int count;
};

}  // namespace sluice::cpu
