#pragma once
// Products of one row of float32 and a matrix, compiled for each instruction set. They take as long as it takes to read
// the matrix, where a library that is made for many rows first lays it out anew.
#include <cstdint>

namespace sluice::cpu {

// c = a b + bias + residual: `a` is one dense row of `depth`; b's rows or its columns are dense.
// Each element of c is a sum over k in order, of products that are not rounded, but that a new sum begins after every
// `chunk` of them; those are added in their order. So a library that sums up in the same way gives the same bits.
struct RowProduct {
  const float* a;
  const float* b;
  int64_t b_depth, b_column;  // strides; one of them is 1
  int64_t depth, chunk;
  const float* bias;      // or null
  const float* residual;  // or null
  float* c;
};
// Columns [begin, end) of c.
void multiply_row(const RowProduct& p, int64_t begin, int64_t end);

}  // namespace sluice::cpu
