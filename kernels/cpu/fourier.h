#pragma once
// The discrete Fourier transform of one line of complex numbers, of any length.
#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice::cpu {

// Prepared for a length and a direction. Thread-safe: what it writes is in the memory that run() is given.
//
// A length of small prime factors goes through one stage per factor, each of which reads lines of one array and writes
// those of the other (Stockham's order, which needs no permutation). Any other length n is a convolution with a chirp,
// exp(-i pi k^2 / n), made by transforms of a power of two (Bluestein's way).
template <class T>
class Fourier {
 public:
  using Complex = std::complex<T>;
  Fourier(int64_t n, bool inverse);

  static bool has_small_factors(int64_t n);
  int64_t scratch() const;  // elements that run() writes beside the line
  // Replaces the n elements of `line` by their transform, unscaled.
  void run(Complex* line, Complex* scratch) const;

 private:
  struct Stage {
    int64_t radix, lines, stride;   // of each line `radix` elements, `lines` times, in groups of `stride`
    std::vector<Complex> twiddles;  // (radix - 1) per line
  };
  void run_stages(Complex* line, Complex* scratch) const;
  void run_chirp(Complex* line, Complex* scratch) const;
  void butterfly(const Stage& stage, const Complex* x, Complex* y) const;

  int64_t n_;
  bool inverse_;
  std::vector<Stage> stages_;
  std::vector<std::vector<Complex>> roots_;  // of unity, per radix
  std::vector<Complex> chirp_, spectrum_;    // of lengths without small factors
  std::unique_ptr<Fourier> forth_, back_;
};

extern template class Fourier<float>;
extern template class Fourier<double>;

}  // namespace sluice::cpu
