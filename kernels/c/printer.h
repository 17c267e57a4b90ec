#pragma once
// Kernels as C99: the body of a function for one query, with shapes, strides and attributes in it as numbers.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/scalar_ops.h"
#include "kernels/c/shared.h"
#include "plan/target.h"

namespace sluice::c {

// The names of a dtype in C, in memory and in computations. Throw kUnsupported for those without a form in C.
const char* memory_type(DType dtype);   // "f32", "u8" of bool
const char* compute_type(DType dtype);  // "float", "double", or "i64" of integers and bool

// A number as C writes it, with every bit. A float is written as "0x1.8p+1f"; infinities and NaN are macros of
// <math.h>.
std::string literal(double value, DType dtype);

// Lines of C, indented by the loops and conditions around them.
class Lines {
 public:
  void add(const std::string& line);
  void open(const std::string& line);  // "for (...) {"
  void close();
  void close_all();
  // for (i64 NAME = 0; NAME < n; ++NAME)
  void loop(const std::string& name, int64_t n);
  // Loops over some axes of a shape; the variable of axis k is NAMEk.
  void loops(const std::string& name, const Shape& shape, const std::vector<int>& axes);
  void loops(const std::string& name, const Shape& shape);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 1;
};

// "i0 * 12 + i2": where an element lies. Places have the numbers of axes, or are given one by one; "" is left out.
std::string offset(const Strides& strides, const std::string& name);
std::string offset(const Strides& strides, const std::vector<std::string>& places);

// The body for a query: operands are pointers x0, x1, ... (null: absent) and y0, y1, ...; it returns an error's number
// where it finds one. Throws kUnsupported.
using Print = std::string (*)(const plan::KernelQuery& query, Shared& shared);

struct Printer {
  Print print = nullptr;
  std::vector<plan::InPlacePair> in_place = {};  // output may overwrite input
  bool fuses = false;                            // may be a step of "fused", or of "fused_rows"
};
using Printers = std::map<std::string, Printer>;

const Printers& printers();  // by op

// One function for a family; printers() calls them all.
void add_elementwise(Printers& printers);
void add_reductions(Printers& printers);
void add_rows(Printers& printers);
void add_products(Printers& printers);
void add_convolutions(Printers& printers);
void add_int8(Printers& printers);
void add_pooling(Printers& printers);
void add_movement(Printers& printers);
void add_indexing(Printers& printers);

}  // namespace sluice::c
