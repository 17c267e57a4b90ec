#pragma once
// Operands of elementwise functions: a tensor, or a number that does not raise the tensor's dtype (torch's rules).
#include <complex>
#include <cstdint>
#include <utility>

#include "graph/value.h"

namespace sluice::ops {

// Implicit on purpose: add(x, 1), sub(1.0, x) and mul(x, y) are the same functions.
class Operand {
 public:
  Operand(const Value& value) : value_(value) {}
  Operand(double number) : number_(number), kind_(Kind::kFloat) {}
  Operand(int64_t number) : number_(static_cast<double>(number)), integer_(number), kind_(Kind::kInt) {}
  Operand(int number) : Operand(static_cast<int64_t>(number)) {}
  Operand(bool number) : number_(number ? 1 : 0), kind_(Kind::kBool) {}
  Operand(std::complex<double> number) : number_(number.real()), imaginary_(number.imag()), kind_(Kind::kComplex) {}

  bool is_number() const { return kind_ != Kind::kTensor; }
  // REQUIRES: !is_number().
  const Value& value() const { return value_; }
  // Throws kRuntime for a complex one. REQUIRES: is_number().
  double number() const {
    if (kind_ == Kind::kComplex) refuse_complex();
    return number_;
  }
  bool is_complex_number() const { return kind_ == Kind::kComplex; }
  // REQUIRES: is_number().
  std::complex<double> complex_number() const { return {number_, kind_ == Kind::kComplex ? imaginary_ : 0.0}; }
  // The dtype an operation of this number with a tensor of `other` has: int + 1.5 is float32, half + 1.5 is half.
  DType dtype_with(DType other) const;
  // Two numbers give float32, complex64, int64 or bool.
  DType own_dtype() const;
  // A tensor's, or own_dtype().
  DType dtype() const { return is_number() ? own_dtype() : value_.dtype(); }
  // As a tensor of `dtype`: a cast (nothing when it is of that dtype), or a scalar. Integers are exact.
  Value to(DType dtype) const;
  // Throws kRuntime when `dtype` is of integers and cannot hold the number; an unsigned one holds negatives as torch's
  // does, by their two's complement. REQUIRES: is_number().
  void check_fits(DType dtype, const char* where) const;

 private:
  enum class Kind : uint8_t { kTensor, kFloat, kInt, kBool, kComplex };
  [[noreturn]] static void refuse_complex();
  Value value_;
  double number_ = 0;
  union {
    int64_t integer_ = 0;  // when kInt: number_ is rounded
    double imaginary_;     // when kComplex
  };
  Kind kind_ = Kind::kTensor;
};

// The floating dtype that numbers and integers become where one is needed: torch.get_default_dtype(). Thread-safe.
DType default_dtype();
void set_default_dtype(DType dtype);  // REQUIRES: floating

// A tensor of shape () made by the op `full`.
Value scalar(double value, DType dtype);
Value scalar(std::complex<double> value, DType dtype);
// Whether torch writes results of one dtype into memory of the other: of bools, integers, floats and complex numbers
// only into those that follow.
bool can_cast(DType from, DType to);
// The dtype of an operation on both, and both as tensors of it.
DType result_dtype(const Operand& a, const Operand& b);
std::pair<Value, Value> promoted(const Operand& a, const Operand& b);
// Integers and bool become default_dtype(): what exp, sqrt, div, mean... compute on. Complex numbers stay.
Value to_floating(const Value& x);

}  // namespace sluice::ops
