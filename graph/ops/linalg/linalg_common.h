#pragma once
// Helpers that definitions of linear algebra share.
#include <algorithm>
#include <string>
#include <vector>

#include "graph/op_def.h"

namespace sluice::ops {

inline void check_matrix_type(const TensorType& a) {
  const DType part = to_real(a.dtype);
  SLUICE_CHECK_KIND(kType, part == DType::kFloat32 || part == DType::kFloat64,
                    "a: dtype is {}; must be float32, float64, complex64 or complex128", dtype_name(a.dtype));
  SLUICE_CHECK(a.shape.rank() >= 2, "a: shape is {}; must have 2 or more dims", a.shape.str());
}

inline void check_square_type(const TensorType& a) {
  check_matrix_type(a);
  SLUICE_CHECK(a.shape.back() == a.shape[a.shape.rank() - 2], "a: shape is {}; its last two dims must be equal",
               a.shape.str());
}

inline void check_part(const std::string& part) {
  SLUICE_CHECK(part == "both" || part == "lower" || part == "upper", "part: \"{}\"; must be both, lower or upper",
               part);
}

inline Shape batch_of_type(const TensorType& a) {
  Shape batch;
  for (int i = 0; i + 2 < a.shape.rank(); ++i) batch.push_back(a.shape[i]);
  return batch;
}

inline std::vector<int> leading_axes(const TensorType& a, int last) {
  std::vector<int> axes;
  for (int i = 0; i + last < a.shape.rank(); ++i) axes.push_back(i);
  return axes;
}

// Everything broadcast, or all operands split along an axis of the batch, which all of them have.
inline std::vector<SbpRow> batch_sbp(Types in, size_t outputs) {
  const auto row = [&](Sbp sbp) { return SbpRow{std::vector<Sbp>(in.size(), sbp), std::vector<Sbp>(outputs, sbp)}; };
  std::vector<SbpRow> rows = {row(Sbp::broadcast())};
  for (int axis : leading_axes(in[0], 2)) rows.push_back(row(Sbp::split(axis)));
  return rows;
}

// numerator / denominator multiplications and additions per element of the first operand and column.
template <int numerator, int denominator>
Cost cubic_cost(Types in, Types out, const Attrs&) {
  const double size = static_cast<double>(numel(in[0].shape));
  return {2 * numerator * size * static_cast<double>(in.back().shape.back()) / denominator, operand_bytes(in, out)};
}

}  // namespace sluice::ops
