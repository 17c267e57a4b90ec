#pragma once
// Discrete Fourier transforms of complex lines; all others are composites of it (fft_forms.cpp).
#include "graph/op_def.h"

namespace sluice::ops {

// scale * sum over k of x[k] exp(-2 pi i j k / n) along `dim` of a complex tensor; with `inverse`, exp(+2 pi i ...).
Value fourier(const Value& x, int64_t dim, bool inverse, double scale);

std::span<const OpDef* const> fft_ops();

}  // namespace sluice::ops
