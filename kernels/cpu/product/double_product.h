#pragma once
// Products of matrices of doubles, which oneDNN does not have, compiled for each instruction set.
#include <cstdint>

namespace sluice::cpu {

inline constexpr int64_t kProductLanes = 64;  // columns of a block

// c = a b of `rows` rows and up to kProductLanes columns. Operands have any strides; c's are doubles of dense rows of
// kProductLanes. A row's sums do not depend on the number of rows.
struct DoubleProduct {
  const double* a;
  int64_t a_row, a_depth;
  const double* b;
  int64_t b_depth, b_column;
  int64_t rows, depth, columns;
};
void multiply_doubles(const DoubleProduct& p, double* c);

}  // namespace sluice::cpu
