// L D L^T of symmetric and Hermitian matrices, and systems with such factors.
#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/linalg.h"
#include "graph/ops/linalg/linalg_common.h"

namespace sluice::ops {
namespace {

const OpDef ldl_def{
    .name = "linalg_ldl",
    .doc =
        "L and the blocks of D of a = P L D L^T P^T (L^H where hermitian), of a's lower triangle, in one matrix; the "
        "exchanges of rows (int32, from 1; minus the row for both of a block of two); and the first zero block.",
    .inputs = {"a"},
    .params = {{"hermitian", false}, {"caller", ""}},
    .num_outputs = 3,
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      check_square_type(in[0]);
      Shape pivots = batch_of_type(in[0]);
      pivots.push_back(in[0].shape.back());
      return {in[0], {DType::kInt32, pivots}, {DType::kInt32, batch_of_type(in[0])}};
    },
    .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 3); },
    .cost = cubic_cost<1, 3>,
    .samples = {{{{.shape = {3, 3}}}}, {{{.shape = {2, 4, 4}}}, {true, ""}}, {{{.shape = {0, 0}}}}}};

const OpDef ldl_solve_def{
    .name = "linalg_ldl_solve",
    .doc = "x (..., n, k) with a x = b, of a's factors and pivots by linalg_ldl.",
    .inputs = {"factors", "pivots", "b"},
    .params = {{"hermitian", false}},
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      check_square_type(in[0]);
      const Shape &a = in[0].shape, &b = in[2].shape;
      Shape pivots = batch_of_type(in[0]);
      pivots.push_back(a.back());
      SLUICE_CHECK(
          in[1].dtype == DType::kInt32 && in[1].shape == pivots && in[2].dtype == in[0].dtype && b.rank() == a.rank() &&
              batch_of_type(in[2]) == batch_of_type(in[0]) && b[b.rank() - 2] == a.back(),
          "operands: factors are {}, pivots {}, b {}; pivots must be int32 rows, b of the factors' dtype, batch "
          "and rows",
          in[0].str(), in[1].str(), in[2].str());
      return {in[2]};
    },
    .sbp = [](Types in, const Attrs&) { return batch_sbp(in, 1); },
    .cost = cubic_cost<2, 1>,
    .samples = {{{{.shape = {3, 3}, .low = 1, .high = 2},
                  {.shape = {3}, .dtype = DType::kInt32, .low = 3, .high = 3},
                  {.shape = {3, 2}}}},
                {{{.shape = {2, 2, 2}, .low = 1, .high = 2},
                  {.shape = {2, 2}, .dtype = DType::kInt32, .low = 2, .high = 2},
                  {.shape = {2, 2, 1}}}}}};

}  // namespace

std::vector<Value> ldl_factors(const Value& a, bool hermitian, const std::string& caller) {
  return call(ldl_def, Values{a}, {hermitian, caller});
}

Value ldl_solve(const Value& factors, const Value& pivots, const Value& b, bool hermitian) {
  return call1(ldl_solve_def, {factors, pivots, b}, {hermitian});
}

std::span<const OpDef* const> ldl_ops() {
  static const OpDef* const ops[] = {&ldl_def, &ldl_solve_def};
  return ops;
}

}  // namespace sluice::ops
