#include "graph/operand.h"

#include <atomic>
#include <cmath>

#include "base/error.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"

namespace sluice::ops {

namespace {
std::atomic<DType> floating_by_default{DType::kFloat32};
}  // namespace

DType default_dtype() { return floating_by_default; }
void set_default_dtype(DType dtype) { floating_by_default = dtype; }

DType Operand::own_dtype() const {
  switch (kind_) {
    case Kind::kTensor: return value_.dtype();
    case Kind::kFloat: return default_dtype();
    case Kind::kInt: return DType::kInt64;
    case Kind::kBool: return DType::kBool;
    case Kind::kComplex: return to_complex(default_dtype());
  }
  return DType::kFloat32;
}

DType Operand::dtype_with(DType other) const {
  switch (kind_) {
    case Kind::kTensor: return promote(value_.dtype(), other);
    case Kind::kFloat: return is_differentiable(other) ? other : default_dtype();
    case Kind::kInt: return other == DType::kBool ? DType::kInt64 : other;
    case Kind::kBool: return other;
    case Kind::kComplex: return is_differentiable(other) ? to_complex(other) : own_dtype();
  }
  return other;
}

Value Operand::to(DType dtype) const {
  if (!is_number()) return cast(value_, dtype);
  if (kind_ == Kind::kComplex) return scalar(complex_number(), dtype);
  constexpr int64_t kExact = int64_t{1} << 53;  // up to here doubles hold every integer
  if (kind_ != Kind::kInt || !is_integral(dtype) || (integer_ >= -kExact && integer_ <= kExact))
    return scalar(number_, dtype);
  constexpr int64_t kHalf = int64_t{1} << 32;
  const int64_t high = integer_ >> 32, low = integer_ & (kHalf - 1);
  const Value whole = add(mul(scalar(static_cast<double>(high), DType::kInt64), kHalf), low);
  return cast(whole, dtype);
}

void Operand::refuse_complex() {
  fail(ErrorKind::kRuntime,
       "value cannot be converted to type double without overflow: a complex number; must be real");
}

void Operand::check_fits(DType dtype, const char* where) const {
  SLUICE_CHECK_KIND(kRuntime, is_complex(dtype) || kind_ != Kind::kComplex || imaginary_ == 0,
                    "{}: value cannot be converted to type {} without overflow: {}{:+}j; it must be real", where,
                    dtype_name(dtype), number_, imaginary_);
  const auto refuse = [&] {
    fail(ErrorKind::kRuntime, "{}: value cannot be converted to type {} without overflow: {}; it must fit", where,
         dtype_name(dtype), number_);
  };
  if (is_floating(dtype) && std::isfinite(number_) && std::abs(number_) > largest(dtype)) refuse();
  if (!is_integral(dtype)) return;
  const int bits = static_cast<int>(dtype_size(dtype)) * 8;
  const double past = std::ldexp(1.0, dtype == DType::kUInt8 ? bits : bits - 1);
  if (kind_ == Kind::kFloat) {  // NaN does not fit, nor what would be cut to a number that does
    if (!(number_ >= (dtype == DType::kUInt8 ? 0 : -past) && number_ <= past - 1)) refuse();
    return;
  }
  const double whole = std::trunc(number_);
  const bool fits = kind_ == Kind::kInt && dtype == DType::kInt64
                        ? true
                        : whole < past && (dtype == DType::kUInt8 ? whole > -past : whole >= -past);
  if (!fits) refuse();
}

Value scalar(double value, DType dtype) { return full(Shape{}, value, dtype); }
Value scalar(std::complex<double> value, DType dtype) {
  if (!is_complex(dtype)) return scalar(value.real(), dtype);
  const DType part = to_real(dtype);
  return complex(scalar(value.real(), part), scalar(value.imag(), part));
}

bool can_cast(DType from, DType to) {
  const auto kind = [](DType d) { return d == DType::kBool ? 0 : is_integral(d) ? 1 : is_complex(d) ? 3 : 2; };
  return kind(from) <= kind(to);
}

DType result_dtype(const Operand& a, const Operand& b) {
  if (!a.is_number() && !b.is_number()) {
    // As in torch, a tensor of rank 0 raises one with axes only to another kind (bool, integer, floating, complex).
    const DType x = a.value().dtype(), y = b.value().dtype();
    const bool a_rank0 = a.value().rank() == 0, b_rank0 = b.value().rank() == 0;
    if (a_rank0 != b_rank0) {
      const DType with_axes = a_rank0 ? y : x, single = a_rank0 ? x : y;
      if (is_complex(single) && is_floating(with_axes)) return to_complex(with_axes);
      return can_cast(single, with_axes) ? with_axes : single;
    }
    return promote(x, y);
  }
  if (!a.is_number()) return b.dtype_with(a.value().dtype());
  if (!b.is_number()) return a.dtype_with(b.value().dtype());
  return promote(a.own_dtype(), b.own_dtype());
}

std::pair<Value, Value> promoted(const Operand& a, const Operand& b) {
  const DType dtype = result_dtype(a, b);
  return {a.to(dtype), b.to(dtype)};
}

Value to_floating(const Value& x) { return is_differentiable(x.dtype()) ? x : cast(x, default_dtype()); }

}  // namespace sluice::ops
