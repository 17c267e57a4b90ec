#include "graph/ops/creation.h"

#include <cmath>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"

namespace sluice::ops {
namespace {

const OpDef full_def{.name = "full",
                     .doc = "Every element is `value`. torch.full.",
                     .inputs = {},
                     .params = {{.name = "shape", .default_value = Ints{}, .required = true},
                                {.name = "value", .default_value = 0.0, .required = true},
                                {.name = "dtype", .default_value = DType::kFloat32}},
                     .infer = [](Types, Present, const Attrs& attrs) -> std::vector<TensorType> {
                       const TensorType out{attr<DType>(attrs, 2), Shape(attr<Ints>(attrs, 0))};
                       numel(out.shape);  // refuses negative and overflowing sizes
                       return {out};
                     },
                     .grad = [](const GradContext&) { return Values{}; },
                     .sbp = broadcast_sbp,
                     .samples = {{.inputs = {}, .attrs = {Ints{}, 2.5, DType::kFloat32}},
                                 {.inputs = {}, .attrs = {Ints{3, 4}, -1.0, DType::kInt64}},
                                 {.inputs = {}, .attrs = {Ints{5}, 1.0, DType::kBool}},
                                 {.inputs = {}, .attrs = {Ints{2, 3}, 0.1, DType::kBFloat16}},
                                 {.inputs = {}, .attrs = {Ints{0, 3}, 1.0, DType::kFloat64}}}};

const OpDef iota_def{.name = "iota",
                     .doc = "start + i * step for i < n, computed in float64 (integers in int64). torch.arange.",
                     .inputs = {},
                     .params = {{.name = "start", .default_value = 0.0, .required = true},
                                {.name = "step", .default_value = 1.0, .required = true},
                                {.name = "n", .default_value = int64_t{0}, .required = true},
                                {.name = "dtype", .default_value = DType::kInt64}},
                     .infer = [](Types, Present, const Attrs& attrs) -> std::vector<TensorType> {
                       const int64_t n = attr<int64_t>(attrs, 2);
                       SLUICE_CHECK(n >= 0, "n: negative: {}; must be >= 0", n);
                       SLUICE_CHECK_KIND(kType, attr<DType>(attrs, 3) != DType::kBool, "dtype: bool; must be a number");
                       return {{attr<DType>(attrs, 3), {n}}};
                     },
                     .grad = [](const GradContext&) { return Values{}; },
                     .sbp = broadcast_sbp,
                     .samples = {{.inputs = {}, .attrs = {0.0, 1.0, int64_t{5}, DType::kInt64}},
                                 {.inputs = {}, .attrs = {-1.0, 0.5, int64_t{7}, DType::kFloat32}},
                                 {.inputs = {}, .attrs = {10.0, -2.0, int64_t{4}, DType::kInt32}},
                                 {.inputs = {}, .attrs = {0.0, 1.0, int64_t{0}, DType::kFloat64}}}};

}  // namespace

std::span<const OpDef* const> creation_ops() {
  static const OpDef* const ops[] = {&full_def, &iota_def};
  return ops;
}

Value full(const Shape& shape, double value, DType dtype) { return call1(full_def, {}, {shape.vec(), value, dtype}); }
Value zeros(const Shape& shape, DType dtype) { return full(shape, 0, dtype); }
Value ones(const Shape& shape, DType dtype) { return full(shape, 1, dtype); }
Value full_like(const Value& x, double value) { return full(x.shape(), value, x.dtype()); }
Value zeros_like(const Value& x) { return full_like(x, 0); }
Value ones_like(const Value& x) { return full_like(x, 1); }

Value iota(double start, double step, int64_t n, DType dtype) { return call1(iota_def, {}, {start, step, n, dtype}); }

Value arange(double start, double end, double step, DType dtype) {
  SLUICE_CHECK(step != 0 && std::isfinite(start) && std::isfinite(end) && std::isfinite(step),
               "arange: start {}, end {}, step {}; all must be finite and step not 0", start, end, step);
  SLUICE_CHECK((end - start) / step >= 0, "arange: step {} leads away from {} to {}; its sign must agree", step, start,
               end);
  return iota(start, step, static_cast<int64_t>(std::ceil((end - start) / step)), dtype);
}

Value linspace(double start, double end, int64_t steps, DType dtype) {
  SLUICE_CHECK(steps >= 0, "linspace: steps is {}; must be >= 0", steps);
  if (steps < 2) return iota(start, 0.0, steps, dtype);
  // Each half is counted from its own end, so that both ends are there exactly.
  const int64_t half = (steps + 1) / 2;
  const auto line = [&](const auto& from) {
    return concat(std::vector{from(start, 1, half), flip(from(end, -1, steps - half), {0})}, 0);
  };
  const double gaps = static_cast<double>(steps - 1);
  if (is_floating(dtype)) {
    const double step = (end - start) / gaps;
    return line([&](double from, int sign, int64_t n) { return iota(from, sign * step, n, dtype); });
  }
  // As torch: between whole numbers, in float32, of which each product and each sum is rounded.
  const double first = std::trunc(start), step = round_to(DType::kFloat32, (std::trunc(end) - first) / gaps);
  const Value numbers = line([&](double from, int sign, int64_t n) {
    return add(mul(iota(0, sign, n, DType::kFloat32), step), std::trunc(from));
  });
  return cast(numbers, dtype);
}

Value eye(int64_t n, int64_t m, DType dtype) {
  const int64_t columns = m < 0 ? n : m;
  const int64_t ones_in_it = std::min(n, columns);
  if (ones_in_it == 0) return zeros({n, columns}, dtype);
  const int64_t up_to_last = (ones_in_it - 1) * (columns + 1) + 1;  // in rows behind each other
  return reshape(pad(ones({ones_in_it}, dtype), {0}, {n * columns - up_to_last}, 0, {columns}), {n, columns});
}

}  // namespace sluice::ops
