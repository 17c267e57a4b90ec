#pragma once
// Operations on complex numbers that other numbers have, too.
#include <complex>

namespace sluice::cpu {

// The product of complex numbers leaves out C's special cases for infinite factors.
template <class T>
inline T product(T a, T b) {
  return a * b;
}
template <class T>
inline std::complex<T> product(std::complex<T> a, std::complex<T> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

template <class T>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<std::complex<T>> = true;

}  // namespace sluice::cpu
