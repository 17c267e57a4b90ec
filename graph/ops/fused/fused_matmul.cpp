#include "graph/ops/fused_matmul.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/matmul.h"
#include "graph/ops/norm_common.h"

namespace sluice::ops {
namespace {

namespace fm = fused_matmul_input;

std::vector<TensorType> infer_fused_matmul(Types in, Present present, const Attrs& attrs) {
  const std::vector<TensorType> y =
      infer_types(matmul_op(), in.first(fm::kResidual), present.first(fm::kResidual), attrs);
  check_floating(in[fm::kLeft], "fused_matmul");
  const TensorType row{y[0].dtype, {y[0].shape.back()}};
  SLUICE_CHECK_KIND(kRuntime, !present[fm::kBias] || in[fm::kBias] == row,
                    "fused_matmul: bias does not fit: {}; the product's rows are {}", in[fm::kBias].str(), row.str());
  SLUICE_CHECK_KIND(kRuntime, in[fm::kResidual] == y[0], "fused_matmul: residual does not fit: {}; the product is {}",
                    in[fm::kResidual].str(), y[0].str());
  return y;
}

std::vector<Value> decompose_fused_matmul(std::span<const Value> in, const Attrs& attrs) {
  const Value y = call1(matmul_op(), {in[fm::kLeft], in[fm::kRight]}, attrs), bias = input_or_none(in, fm::kBias);
  return {add(bias.defined() ? add(y, bias) : y, in[fm::kResidual])};
}

const OpDef fused_matmul_def{
    .name = "fused_matmul",
    .doc = "matmul(a, b) plus a row, where there is one, plus residual. What compiling makes of these.",
    .inputs = {"a", "b", "residual", "bias?"},
    .params = {{"transpose_a", false}, {"transpose_b", false}},
    .infer = infer_fused_matmul,
    .decompose = decompose_fused_matmul,
    .sbp = [](Types in, const Attrs&) -> std::vector<SbpRow> {
      return {{std::vector<Sbp>(in.size(), Sbp::broadcast()), {Sbp::broadcast()}}};
    },
    .cost =
        [](Types in, Types out, const Attrs& attrs) {
          Cost cost = cost_of(matmul_op(), in.first(fm::kResidual), out, attrs);
          cost.bytes = operand_bytes(in, out);
          return cost;
        },
    .precision = OpDef::Precision::kMatmul,
    .samples =
        {
            {{{{4, 3}}, {{3, 5}}, {{4, 5}}, {{5}}}},
            {{{{7, 3}}, {{5, 3}}, {{7, 5}}, kAbsent}, {false, true}},
            {{{{3, 4}}, {{3, 5}}, {{4, 5}}, {{5}}}, {true, false}},
            {{{{2, 4, 3}}, {{5, 3}}, {{2, 4, 5}}, {{5}}}, {false, true}},
            {{{{2, 4, 3}}, {{2, 3, 5}}, {{2, 4, 5}}, kAbsent}},
            {{{{2, 1, 4, 3}}, {{3, 5, 3}}, {{2, 3, 4, 5}}, {{5}}}, {false, true}},
            {{{{4, 0}}, {{0, 5}}, {{4, 5}}, {{5}}}},
            {{{{0, 3}}, {{3, 5}}, {{0, 5}}, kAbsent}},
        }};

}  // namespace

const OpDef& fused_matmul_op() { return fused_matmul_def; }
std::span<const OpDef* const> fused_matmul_ops() {
  static const OpDef* const ops[] = {&fused_matmul_def};
  return ops;
}

}  // namespace sluice::ops
