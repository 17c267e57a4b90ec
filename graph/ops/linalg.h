#pragma once
// Linear algebra on the last two dims of float32, float64 and complex tensors; the others are batches. As torch.linalg.
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/op_def.h"

namespace sluice::ops {

// `caller` is the public function that runs: what its kernel finds (a singular matrix) is an error that names it. "":
// that is no error, but a number in the result `info` (int32), 0 where all went well.

// Which part of a symmetric (or Hermitian) matrix is read: "lower", "upper", or "both", of which the mean counts.
std::pair<Value, Value> cholesky_factor(const Value& a, const std::string& part, const std::string& caller);  // L, info
// Factors of a = P L U in one matrix, the exchanges of rows (int32, from 1), info.
std::vector<Value> lu_factors(const Value& a, const std::string& caller);
// L and D of symmetric a = P L D L^T P^T, or Hermitian with L^H, in one matrix, the exchanges of rows (int32), info.
std::vector<Value> ldl_factors(const Value& a, bool hermitian, const std::string& caller);
Value ldl_solve(const Value& factors, const Value& pivots, const Value& b, bool hermitian);  // b has the factors' batch
// The order (int64) that `pivots` bring n rows into: P L U = a where (L U)[i] = a[order[i]].
Value permutation_of(const Value& pivots, int64_t n);
// x with a x = b, and info; b has a's batch.
std::pair<Value, Value> solve_system(const Value& a, const Value& b, const std::string& caller);
// x with a x = b, of which one triangle of a is read. transpose: of a, whose triangle is as it is given.
Value solve_triangular_system(const Value& a, const Value& b, bool upper, bool transpose = false, bool unit = false);
std::pair<Value, Value> qr_factors(const Value& a, bool complete = false);                  // Q, R
std::pair<Value, Value> eigen_symmetric(const Value& a, const std::string& part = "both");  // ascending, columns
std::pair<Value, Value> eigen_general(const Value& a);                   // complex, in no order; columns of length 1
std::vector<Value> singular_values(const Value& a, bool full_matrices);  // U, S, Vh
Value matrix_exp(const Value& a);

// Throw kRuntime, as torch does, unless `a` is a floating matrix (or a batch), and a square one. `wide`: 16-bit floats
// are no operands.
void check_matrix(const Value& a, const char* where, const char* name = "A");
void check_square(const Value& a, const char* where, const char* name = "A");
void check_wide(const Value& a, const char* where);

Value transposed(const Value& a);  // the last two dims exchanged
Value adjoint(const Value& a);     // and conjugated
// The lower triangle, with half of the diagonal: with its adjoint, the Hermitian matrix that has it.
Value half_diagonal(const Value& a);
Value identity_like(const Value& a, int64_t n);
// `a` with its batch dims broadcast to those of `batch`, which end before the last two.
Value with_batch(const Value& a, const Shape& batch);
Shape batch_shape(const Value& a);
Value diagonal_of(const Value& a, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);
Value solve(const Value& a, const Value& b, bool left = true, const std::string& caller = "torch.linalg.solve");
Value inverse(const Value& a, const std::string& caller = "linalg.inv");
Value determinant(const Value& a, const char* where = "linalg.det");
Value cross_product(const Value& a, const Value& b, int64_t dim);  // torch.linalg.cross
std::pair<Value, Value> sign_and_logdet(const Value& a, const char* where = "linalg.slogdet");

std::span<const OpDef* const> linalg_ops();
std::span<const OpDef* const> ldl_ops();
std::span<const OpDef* const> decomposition_ops();

}  // namespace sluice::ops
