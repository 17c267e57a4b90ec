#include "kernels/cpu/fourier.h"

#include <algorithm>
#include <numbers>

#include "kernels/cpu/numeric.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kLargestFactor = 13;

std::vector<int64_t> factors_of(int64_t n) {
  std::vector<int64_t> factors;
  for (int64_t f : {4, 2, 3, 5, 7, 11, 13})
    for (; n % f == 0; n /= f) factors.push_back(f);
  if (n > 1) factors.push_back(n);
  return factors;
}

// exp(-2 pi i k / n), or its conjugate.
template <class T>
std::complex<T> root(int64_t k, int64_t n, bool inverse) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  return {static_cast<T>(std::cos(angle)), static_cast<T>(inverse ? std::sin(angle) : -std::sin(angle))};
}

// Times i, or -i.
template <class T>
std::complex<T> turned(std::complex<T> z, bool inverse) {
  return inverse ? std::complex<T>(-z.imag(), z.real()) : std::complex<T>(z.imag(), -z.real());
}

}  // namespace

template <class T>
bool Fourier<T>::has_small_factors(int64_t n) {
  const std::vector<int64_t> factors = factors_of(n);
  return factors.empty() || *std::max_element(factors.begin(), factors.end()) <= kLargestFactor;
}

template <class T>
Fourier<T>::Fourier(int64_t n, bool inverse) : n_(n), inverse_(inverse) {
  if (has_small_factors(n)) {
    int64_t left = n, stride = 1;
    for (int64_t radix : factors_of(n)) {
      Stage stage{radix, left / radix, stride, {}};
      for (int64_t p = 0; p < stage.lines; ++p)
        for (int64_t k = 1; k < radix; ++k) stage.twiddles.push_back(root<T>(p * k, left, inverse));
      std::vector<Complex> roots;
      for (int64_t k = 0; k < radix; ++k) roots.push_back(root<T>(k, radix, inverse));
      roots_.push_back(std::move(roots));
      stages_.push_back(std::move(stage));
      left /= radix;
      stride *= radix;
    }
    return;
  }
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  forth_ = std::make_unique<Fourier>(m, false);
  back_ = std::make_unique<Fourier>(m, true);
  spectrum_.assign(static_cast<size_t>(m), Complex());
  for (int64_t k = 0; k < n; ++k) {
    // k^2 modulo 2 n, as its multiples of 2 pi change nothing.
    const int64_t square = static_cast<int64_t>(static_cast<unsigned __int128>(k) * static_cast<uint64_t>(k) %
                                                static_cast<uint64_t>(2 * n));
    const Complex c = root<T>(square, 2 * n, inverse);
    chirp_.push_back(c);
    spectrum_[k] = std::conj(c);
    if (k > 0) spectrum_[m - k] = std::conj(c);
  }
  std::vector<Complex> other(static_cast<size_t>(forth_->scratch()));
  forth_->run(spectrum_.data(), other.data());
  for (Complex& s : spectrum_) s *= T(1) / static_cast<T>(m);
}

template <class T>
int64_t Fourier<T>::scratch() const {
  return forth_ ? static_cast<int64_t>(spectrum_.size()) + forth_->scratch() : n_;
}

template <class T>
void Fourier<T>::run(Complex* line, Complex* scratch) const {
  if (forth_)
    run_chirp(line, scratch);
  else
    run_stages(line, scratch);
}

template <class T>
void Fourier<T>::run_chirp(Complex* line, Complex* scratch) const {
  const int64_t m = static_cast<int64_t>(spectrum_.size());
  Complex *padded = scratch, *other = scratch + m;
  for (int64_t k = 0; k < n_; ++k) padded[k] = product(line[k], chirp_[k]);
  std::fill(padded + n_, padded + m, Complex());
  forth_->run(padded, other);
  for (int64_t k = 0; k < m; ++k) padded[k] = product(padded[k], spectrum_[k]);
  back_->run(padded, other);
  for (int64_t k = 0; k < n_; ++k) line[k] = product(padded[k], chirp_[k]);
}

template <class T>
void Fourier<T>::run_stages(Complex* line, Complex* scratch) const {
  Complex *from = line, *to = scratch;
  for (const Stage& stage : stages_) {
    butterfly(stage, from, to);
    std::swap(from, to);
  }
  if (from != line) std::copy(from, from + n_, line);
}

// Elements p + lines * j of a line, j < radix, are transformed, turned, and written to radix * p + k.
template <class T>
void Fourier<T>::butterfly(const Stage& stage, const Complex* x, Complex* y) const {
  const int64_t r = stage.radix, s = stage.stride, m = stage.lines;
  const Complex* roots = roots_[static_cast<size_t>(&stage - stages_.data())].data();
  for (int64_t p = 0; p < m; ++p) {
    const Complex* w = stage.twiddles.data() + p * (r - 1);
    const Complex* in = x + s * p;
    Complex* out = y + s * r * p;
    if (r == 2) {
      for (int64_t q = 0; q < s; ++q) {
        const Complex a = in[q], b = in[q + s * m];
        out[q] = a + b;
        out[q + s] = product(a - b, w[0]);
      }
    } else if (r == 4) {
      for (int64_t q = 0; q < s; ++q) {
        const Complex a = in[q], b = in[q + s * m], c = in[q + 2 * s * m], d = in[q + 3 * s * m];
        const Complex even = a + c, odd = b + d, low = a - c, high = turned(b - d, inverse_);
        out[q] = even + odd;
        out[q + s] = product(low + high, w[0]);
        out[q + 2 * s] = product(even - odd, w[1]);
        out[q + 3 * s] = product(low - high, w[2]);
      }
    } else {
      for (int64_t q = 0; q < s; ++q) {
        Complex a[kLargestFactor];
        for (int64_t j = 0; j < r; ++j) a[j] = in[q + s * m * j];
        for (int64_t k = 0; k < r; ++k) {
          Complex sum = a[0];
          for (int64_t j = 1; j < r; ++j) sum += product(a[j], roots[j * k % r]);
          out[q + s * k] = k == 0 ? sum : product(sum, w[k - 1]);
        }
      }
    }
  }
}

template class Fourier<float>;
template class Fourier<double>;

}  // namespace sluice::cpu
