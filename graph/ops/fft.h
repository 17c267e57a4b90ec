#pragma once
// Discrete Fourier transforms of lines; all others are composites of it (fft_forms.cpp).
#include "graph/op_def.h"

namespace sluice::ops {

// scale * sum over k of x[k] exp(-2 pi i j k / n) along `dim` of a complex tensor; with `inverse`, exp(+2 pi i ...).
Value fourier(const Value& x, int64_t dim, bool inverse, double scale);
// The first n / 2 + 1 of the transform of n real numbers; and the real transform of n, of which these are given.
Value fourier_real(const Value& x, int64_t dim, bool inverse, double scale);
Value fourier_hermitian(const Value& x, int64_t dim, bool inverse, double scale, int64_t n);

std::span<const OpDef* const> fft_ops();

}  // namespace sluice::ops
