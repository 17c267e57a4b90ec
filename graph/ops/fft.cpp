#include "graph/ops/fft.h"

#include <cmath>

#include "graph/executor.h"
#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

std::vector<SbpRow> lines_sbp(Types in, const Attrs& attrs) {
  const int dim = normalize_axis(attr<int64_t>(attrs, 0), in[0].shape.rank(), "dim");
  std::vector<int> others;
  for (int i = 0; i < in[0].shape.rank(); ++i)
    if (i != dim) others.push_back(i);
  return untouched_sbp(in, others);
}

Cost transform_cost(Types in, Types out, const Attrs& attrs) {
  const int dim = normalize_axis(attr<int64_t>(attrs, 0), in[0].shape.rank(), "dim");
  const double n = static_cast<double>(in[0].shape[dim]);
  return {5 * static_cast<double>(numel(in[0].shape)) * std::log2(std::max(n, 2.0)), operand_bytes(in, out)};
}

const OpDef fourier_def{
    .name = "fourier",
    .doc =
        "scale * sum over k of x[k] exp(-2 pi i j k / n) along `dim`, of complex x; +2 pi i with `inverse`. What "
        "torch.fft's transforms are made of.",
    .inputs = {"x"},
    .params = {{.name = "dim", .default_value = int64_t{-1}},
               {.name = "inverse", .default_value = false},
               {.name = "scale", .default_value = 1.0}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      SLUICE_CHECK_KIND(kRuntime, is_complex(in[0].dtype), "input: dtype is {}; must be complex",
                        dtype_name(in[0].dtype));
      SLUICE_CHECK_KIND(kIndex, in[0].shape.rank() > 0, "input: has no dims; it must have the one that is transformed");
      const int dim = normalize_axis(attr<int64_t>(attrs, 0), in[0].shape.rank(), "dim");
      SLUICE_CHECK_KIND(kRuntime, in[0].shape[dim] > 0,
                        "Invalid number of data points ({}) specified; must be positive", in[0].shape[dim]);
      return {in[0]};
    },
    // The matrix of the transform is symmetric; the gradient is by its conjugate.
    .grad = [](const GradContext& c) -> std::vector<Value> {
      return {fourier(c.grad_outputs[0], attr<int64_t>(c.attrs, 0), !attr<bool>(c.attrs, 1), attr<double>(c.attrs, 2))};
    },
    .sbp = lines_sbp,
    .cost = transform_cost,
    .samples = {{.inputs = {{.shape = {8}, .dtype = DType::kComplex128}}},
                {.inputs = {{.shape = {3, 7}, .dtype = DType::kComplex128}}, .attrs = {int64_t{1}, true, 0.5}},
                {.inputs = {{.shape = {6, 2}, .dtype = DType::kComplex128}}, .attrs = {int64_t{0}, false, 1.0}}}};

}  // namespace

std::span<const OpDef* const> fft_ops() {
  static const OpDef* const ops[] = {&fourier_def};
  return ops;
}

Value fourier(const Value& x, int64_t dim, bool inverse, double scale) {
  return call1(fourier_def, {x}, {dim, inverse, scale});
}

}  // namespace sluice::ops
