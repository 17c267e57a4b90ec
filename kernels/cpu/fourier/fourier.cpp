#include "kernels/cpu/fourier/fourier.h"

#include <algorithm>
#include <numbers>

#include "kernels/cpu/fourier/fourier_panels.h"
#include "kernels/cpu/math/numeric.h"

namespace sluice::cpu {
namespace {

// Fours and primes; what is left at the end has none up to kLargestFactor.
std::vector<int64_t> factors_of(int64_t n) {
  std::vector<int64_t> factors;
  const auto take = [&](int64_t f) {
    for (; n % f == 0; n /= f) factors.push_back(f);
  };
  take(4), take(2);
  for (int64_t f = 3; f <= kLargestFactor; f += 2) take(f);
  if (n > 1) factors.push_back(n);
  return factors;
}

// exp(-2 pi i k / n), or its conjugate.
template <class T>
std::complex<T> root(int64_t k, int64_t n, bool inverse) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  return {static_cast<T>(std::cos(angle)), static_cast<T>(inverse ? std::sin(angle) : -std::sin(angle))};
}

}  // namespace

template <class T>
bool FourierPlan<T>::has_small_factors(int64_t n) {
  const std::vector<int64_t> factors = factors_of(n);
  return factors.empty() || *std::max_element(factors.begin(), factors.end()) <= kLargestFactor;
}

template <class T>
FourierPlan<T>::FourierPlan(int64_t n, bool inverse) : n(n), inverse(inverse) {
  if (has_small_factors(n)) {
    int64_t left = n, stride = 1;
    for (int64_t radix : factors_of(n)) {
      Stage stage{radix, left / radix, stride, {}, {}};
      for (int64_t p = 0; p < stage.lines; ++p)
        for (int64_t k = 1; k < radix; ++k) stage.twiddles.push_back(root<T>(p * k, left, inverse));
      for (int64_t k = 0; k < radix; ++k) stage.roots.push_back(root<T>(k, radix, inverse));
      stages.push_back(std::move(stage));
      left /= radix;
      stride *= radix;
    }
    return;
  }
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  forth = std::make_unique<FourierPlan>(m, false);
  back = std::make_unique<FourierPlan>(m, true);
  spectrum.assign(static_cast<size_t>(m), Complex());
  for (int64_t k = 0; k < n; ++k) {
    // k^2 modulo 2 n, as its multiples of 2 pi change nothing.
    const int64_t square = static_cast<int64_t>(static_cast<unsigned __int128>(k) * static_cast<uint64_t>(k) %
                                                static_cast<uint64_t>(2 * n));
    const Complex c = root<T>(square, 2 * n, inverse);
    chirp.push_back(c);
    spectrum[k] = std::conj(c);
    if (k > 0) spectrum[m - k] = std::conj(c);
  }
  transform_line(*forth, spectrum.data());
  for (Complex& s : spectrum) s *= T(1) / static_cast<T>(m);
}

template <class T>
int64_t FourierPlan<T>::scratch() const {
  return forth ? static_cast<int64_t>(2 * spectrum.size()) : n;
}

template struct FourierPlan<float>;
template struct FourierPlan<double>;

template <class C>
FourierJob<C>::FourierJob(FourierKind kind, int64_t n, bool inverse, double scale)
    : kind(kind),
      n(n),
      inverse(inverse),
      scale(static_cast<C>(scale)),
      halved(kind != FourierKind::kComplex && n % 2 == 0),
      // A transform of real numbers in the other direction gives the conjugates.
      plan(halved ? n / 2 : n, kind == FourierKind::kComplex ? inverse : kind == FourierKind::kHermitian) {
  for (int64_t k = 0; halved && k <= n / 2; ++k) turns.push_back(root<C>(k, n, false));
}

template struct FourierJob<float>;
template struct FourierJob<double>;

}  // namespace sluice::cpu
