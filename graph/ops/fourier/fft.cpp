#include "graph/ops/fft.h"

#include <cmath>

#include "graph/executor.h"
#include "graph/operand.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"

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

int64_t length_of(const TensorType& x, const Attrs& attrs) {
  SLUICE_CHECK_KIND(kIndex, x.shape.rank() > 0, "input: has no dims; it must have the one that is transformed");
  return x.shape[normalize_axis(attr<int64_t>(attrs, 0), x.shape.rank(), "dim")];
}

TensorType with_length(const TensorType& x, const Attrs& attrs, DType dtype, int64_t n) {
  TensorType out{dtype, x.shape};
  out.shape[normalize_axis(attr<int64_t>(attrs, 0), x.shape.rank(), "dim")] = n;
  return out;
}

// n elements, with zeros behind.
Value filled_up(const Value& x, int64_t dim, int64_t n) {
  const int axis = normalize_axis(dim, x.rank(), "dim");
  Ints low(x.rank(), 0), high(x.rank(), 0);
  high[axis] = n - x.shape()[axis];
  return high[axis] == 0 ? x : pad(x, low, high);
}

const OpDef fourier_real_def{
    .name = "fourier_real",
    .doc = "The first n / 2 + 1 numbers of `fourier` of n real ones: the others are their conjugates.",
    .inputs = {"x"},
    .params = {{.name = "dim", .default_value = int64_t{-1}},
               {.name = "inverse", .default_value = false},
               {.name = "scale", .default_value = 1.0}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      check_floating(in[0], "input");
      const int64_t n = length_of(in[0], attrs);
      SLUICE_CHECK_KIND(kRuntime, n > 0, "Invalid number of data points ({}) specified; must be positive", n);
      return {with_length(in[0], attrs, to_complex(in[0].dtype), n / 2 + 1)};
    },
    .grad = [](const GradContext& c) -> Values {
      const auto dim = attr<int64_t>(c.attrs, 0);
      const Value whole = filled_up(c.grad_outputs[0], dim, length_of(c.inputs[0].type(), c.attrs));
      return {real_part(fourier(whole, dim, !attr<bool>(c.attrs, 1), attr<double>(c.attrs, 2)))};
    },
    .decompose = [](std::span<const Value> in, const Attrs& attrs) -> Values {
      const Value all = fourier(cast(in[0], to_complex(in[0].dtype())), attr<int64_t>(attrs, 0), attr<bool>(attrs, 1),
                                attr<double>(attrs, 2));
      return {slice_axis(all, attr<int64_t>(attrs, 0), 0, length_of(in[0].type(), attrs) / 2 + 1)};
    },
    .sbp = lines_sbp,
    .cost = transform_cost,
    .samples = {{.inputs = {{.shape = {8}, .dtype = DType::kFloat64}}},
                {.inputs = {{.shape = {3, 7}, .dtype = DType::kFloat64}}, .attrs = {int64_t{1}, true, 0.5}},
                {.inputs = {{.shape = {6, 4}, .dtype = DType::kFloat64}}, .attrs = {int64_t{0}, false, 1.0}}}};

// The weights with which the first half of n conjugate pairs counts: those that have no partner once.
Value pair_weights(const Value& half, int64_t dim, int64_t n) {
  const int axis = normalize_axis(dim, half.rank(), "dim");
  const int64_t count = n / 2 + 1;
  const Value place = iota(0, 1, count, DType::kInt64);
  const Value alone = logical_or(eq(place, 0), eq(mul(place, 2), n));
  Ints shape(half.rank(), 1);
  shape[axis] = count;
  return reshape(where(alone, scalar(1, to_real(half.dtype())), scalar(2, to_real(half.dtype()))), shape);
}

const OpDef fourier_hermitian_def{
    .name = "fourier_hermitian",
    .doc = "`fourier` of n numbers of which n / 2 + 1 are given and the others their conjugates: n real ones.",
    .inputs = {"x"},
    .params = {{.name = "dim", .default_value = int64_t{-1}},
               {.name = "inverse", .default_value = false},
               {.name = "scale", .default_value = 1.0},
               {.name = "n", .default_value = int64_t{0}, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      SLUICE_CHECK_KIND(kRuntime, is_complex(in[0].dtype), "input: dtype is {}; must be complex",
                        dtype_name(in[0].dtype));
      const int64_t n = attr<int64_t>(attrs, 3), given = length_of(in[0], attrs);
      SLUICE_CHECK_KIND(kRuntime, n > 0, "Invalid number of data points ({}) specified; must be positive", n);
      SLUICE_CHECK_KIND(kRuntime, given == n / 2 + 1, "input: has {} elements of {}; must have {}", given, n,
                        n / 2 + 1);
      return {with_length(in[0], attrs, to_real(in[0].dtype), n)};
    },
    .grad = [](const GradContext& c) -> Values {
      const auto dim = attr<int64_t>(c.attrs, 0);
      const Value half = fourier_real(c.grad_outputs[0], dim, !attr<bool>(c.attrs, 1), attr<double>(c.attrs, 2));
      return {mul(half, pair_weights(half, dim, attr<int64_t>(c.attrs, 3)))};
    },
    .decompose = [](std::span<const Value> in, const Attrs& attrs) -> Values {
      const auto dim = attr<int64_t>(attrs, 0), n = attr<int64_t>(attrs, 3);
      const Value weights = pair_weights(in[0], dim, n);
      const Value all = filled_up(mul(in[0], weights), dim, n);
      return {real_part(fourier(all, dim, attr<bool>(attrs, 1), attr<double>(attrs, 2)))};
    },
    .sbp = lines_sbp,
    .cost = transform_cost,
    .samples = {{.inputs = {{.shape = {5}, .dtype = DType::kComplex128}}, .attrs = {int64_t{0}, true, 1.0, int64_t{8}}},
                {.inputs = {{.shape = {3, 4}, .dtype = DType::kComplex128}},
                 .attrs = {int64_t{1}, false, 0.5, int64_t{7}}},
                {.inputs = {{.shape = {4, 2}, .dtype = DType::kComplex128}},
                 .attrs = {int64_t{0}, true, 1.0, int64_t{6}}}}};

}  // namespace

std::span<const OpDef* const> fft_ops() {
  static const OpDef* const ops[] = {&fourier_def, &fourier_real_def, &fourier_hermitian_def};
  return ops;
}

Value fourier(const Value& x, int64_t dim, bool inverse, double scale) {
  return call1(fourier_def, {x}, {dim, inverse, scale});
}
Value fourier_real(const Value& x, int64_t dim, bool inverse, double scale) {
  return call1(fourier_real_def, {x}, {dim, inverse, scale});
}
Value fourier_hermitian(const Value& x, int64_t dim, bool inverse, double scale, int64_t n) {
  return call1(fourier_hermitian_def, {x}, {dim, inverse, scale, n});
}

}  // namespace sluice::ops
