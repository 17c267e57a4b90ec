// Complex numbers and their parts: views of one memory as complex or as real numbers, and composites of them.
#include "graph/ops/complex.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

using ViewSpec = OpDef::ViewSpec;

// Axes of the complex tensor split alike on both sides; parts of a sum are summed part by part.
std::vector<SbpRow> parts_sbp(Types in, const Attrs&) {
  std::vector<int> axes;
  const int rank = in[0].shape.rank() - (is_complex(in[0].dtype) ? 0 : 1);
  for (int i = 0; i < rank; ++i) axes.push_back(i);
  return untouched_sbp(in, axes);
}

const OpDef view_as_real_def{
    .name = "view_as_real",
    .doc =
        "A complex tensor as a real one whose last dim has the real and the imaginary part. A view. "
        "torch.view_as_real.",
    .inputs = {"x"},
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      SLUICE_CHECK_KIND(kRuntime, is_complex(in[0].dtype), "view_as_real is only supported for complex tensors: got {}",
                        dtype_name(in[0].dtype));
      TensorType out{to_real(in[0].dtype), in[0].shape};
      out.shape.push_back(2);
      return {out};
    },
    .grad = [](const GradContext& c) -> Values { return {view_as_complex(c.grad_outputs[0])}; },
    .sbp = parts_sbp,
    .view = [](const TensorSpec& input, const Attrs&) -> std::optional<ViewSpec> {
      ViewSpec v{input.shape, input.strides, 0};
      for (int i = 0; i < v.strides.rank(); ++i) v.strides[i] *= 2;
      v.shape.push_back(2);
      v.strides.push_back(1);
      return v;
    },
    .unview = [](const Value&, const Attrs&, const Value& value) { return view_as_complex(value); },
    .samples = {{.inputs = {{.shape = {}, .dtype = DType::kComplex128}}},
                {.inputs = {{.shape = {3, 4}, .dtype = DType::kComplex128}}},
                {.inputs = {{.shape = {0, 3}, .dtype = DType::kComplex128}}}}};

const OpDef view_as_complex_def{
    .name = "view_as_complex",
    .doc =
        "A tensor of float32 or float64 with a last dim of 2, the parts, as a complex one. A view. "
        "torch.view_as_complex.",
    .inputs = {"x"},
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      const DType dtype = in[0].dtype;
      SLUICE_CHECK_KIND(kRuntime, dtype == DType::kFloat32 || dtype == DType::kFloat64,
                        "view_as_complex is only supported for half, float and double tensors, but got a tensor of "
                        "scalar type: {}; must be float32 or float64",
                        dtype_name(dtype));
      const Shape& shape = in[0].shape;
      SLUICE_CHECK_KIND(kRuntime, shape.rank() > 0 && shape[shape.rank() - 1] == 2,
                        "Tensor must have a last dimension of size 2: got shape {}", shape.str());
      return {{to_complex(dtype), Shape(std::span<const int64_t>(shape.begin(), shape.end() - 1))}};
    },
    .grad = [](const GradContext& c) -> Values { return {view_as_real(c.grad_outputs[0])}; },
    .sbp = parts_sbp,
    .view = [](const TensorSpec& input, const Attrs&) -> std::optional<ViewSpec> {
      const int last = input.shape.rank() - 1;
      if (input.strides[last] != 1 && numel(input.shape) > 0) return std::nullopt;
      ViewSpec v;
      for (int i = 0; i < last; ++i) {
        if (input.strides[i] % 2 != 0 && input.shape[i] > 1) return std::nullopt;
        v.shape.push_back(input.shape[i]);
        v.strides.push_back(input.strides[i] / 2);
      }
      return v;
    },
    .unview = [](const Value&, const Attrs&, const Value& value) { return view_as_real(value); },
    .samples = {{.inputs = {{.shape = {2}, .dtype = DType::kFloat64}}},
                {.inputs = {{.shape = {3, 4, 2}, .dtype = DType::kFloat64}}},
                {.inputs = {{.shape = {0, 2}, .dtype = DType::kFloat64}}}}};

// Counts the elements of `to` bytes that are as long as n of `from` bytes; both are powers of two.
int64_t elements_in(int64_t n, int64_t from, int64_t to) { return from < to ? n / (to / from) : numel({n, from / to}); }

// The layout of the elements of `input` as ones of another dtype: the last dim has more, or fewer, of them.
std::optional<ViewSpec> of_other_size(const TensorSpec& input, int64_t from, int64_t to) {
  ViewSpec v{input.shape, input.strides, 0};
  const int last = v.shape.rank() - 1;
  if (from == to) return v;
  bool fits = v.strides[last] == 1;
  v.shape[last] = elements_in(v.shape[last], from, to);
  for (int i = 0; i < last; ++i) {
    fits &= from > to || v.strides[i] % (to / from) == 0;
    fits &= !__builtin_mul_overflow(v.strides[i], std::max<int64_t>(from / to, 1), &v.strides[i]);
    v.strides[i] /= std::max<int64_t>(to / from, 1);
  }
  if (fits) return v;
  if (numel(v.shape) > 0) return std::nullopt;
  v.strides = contiguous_strides(v.shape);  // no element is anywhere
  return v;
}

int64_t bytes_of(DType dtype) { return static_cast<int64_t>(dtype_size(dtype)); }

const OpDef view_as_dtype_def{
    .name = "view_as_dtype",
    .doc =
        "The bytes of the elements as elements of another dtype; the last dim grows or shrinks where those have "
        "another "
        "size. A view without gradient. torch.Tensor.view(dtype).",
    .inputs = {"x"},
    .params = {{.name = "dtype", .default_value = DType::kFloat32, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      TensorType out{attr<DType>(attrs, 0), in[0].shape};
      const int64_t from = bytes_of(in[0].dtype), to = bytes_of(out.dtype);
      if (from == to) return {out};
      const int last = out.shape.rank() - 1;
      SLUICE_CHECK_KIND(kRuntime, last >= 0, "self.dim() cannot be 0 to view {} as {} (different element sizes)",
                        dtype_name(in[0].dtype), dtype_name(out.dtype));
      SLUICE_CHECK_KIND(kRuntime, from > to || out.shape[last] % (to / from) == 0,
                        "self.size(-1) must be divisible by {} to view {} as {} (different element sizes), but got {}",
                        to / from, dtype_name(in[0].dtype), dtype_name(out.dtype), out.shape[last]);
      out.shape[last] = elements_in(out.shape[last], from, to);
      return {out};
    },
    .grad = [](const GradContext& c) { return Values(c.inputs.size()); },
    .sbp =
        [](Types in, const Attrs& attrs) {
          const bool alike = bytes_of(in[0].dtype) == bytes_of(attr<DType>(attrs, 0));
          std::vector<SbpRow> rows;
          for (int i = 0; i < in[0].shape.rank() - (alike ? 0 : 1); ++i)
            rows.push_back(row_of({Sbp::split(i)}, Sbp::split(i)));
          return rows;
        },
    .view = [](const TensorSpec& input, const Attrs& attrs) -> std::optional<ViewSpec> {
      return of_other_size(input, bytes_of(input.dtype), bytes_of(attr<DType>(attrs, 0)));
    },
    .unview = [](const Value& base, const Attrs&, const Value& value) { return view_as_dtype(value, base.dtype()); },
    .samples = {{.inputs = {{.shape = {}, .dtype = DType::kInt32}}, .attrs = {DType::kFloat32}},
                {.inputs = {{.shape = {3, 4}, .dtype = DType::kInt64}}, .attrs = {DType::kInt32}},
                {.inputs = {{.shape = {3, 4}, .dtype = DType::kInt32}}, .attrs = {DType::kInt64}},
                {.inputs = {{.shape = {0, 4}, .dtype = DType::kInt32}}, .attrs = {DType::kUInt8}}}};

std::vector<Value> conjugated(const GradContext& c, const GradRule& rule) {
  Values seeds(c.grad_outputs.begin(), c.grad_outputs.end());
  bool any = false;
  for (Value& g : seeds) {
    if (!g.defined() || !is_complex(g.dtype())) continue;
    g = conj(g);
    any = true;
  }
  if (!any) return rule(c);
  Values gradients = rule({c.inputs, c.outputs, seeds, c.attrs, c.needs});
  for (Value& g : gradients)
    if (g.defined()) g = conjugate(g);
  return gradients;
}

}  // namespace

std::span<const OpDef* const> complex_ops() {
  static const OpDef* const ops[] = {&view_as_real_def, &view_as_complex_def, &view_as_dtype_def};
  return ops;
}

Value view_as_real(const Value& z) { return call1(view_as_real_def, {z}); }
Value view_as_complex(const Value& parts) { return call1(view_as_complex_def, {parts}); }
Value view_as_dtype(const Value& x, DType dtype) { return call1(view_as_dtype_def, {x}, {dtype}); }

void check_parts(const Value& real, const Value& imaginary) {
  SLUICE_CHECK_KIND(kRuntime, real.dtype() == imaginary.dtype(),
                    "Expected object of scalar type {} but got scalar type {} for second argument: both parts must "
                    "have one dtype",
                    dtype_name(real.dtype()), dtype_name(imaginary.dtype()));
  SLUICE_CHECK_KIND(kRuntime, real.dtype() == DType::kFloat32 || real.dtype() == DType::kFloat64,
                    "Expected both inputs to be Half, Float or Double tensors but got {}; must be float32 or float64",
                    dtype_name(real.dtype()));
}

Value complex(const Value& real, const Value& imaginary) {
  check_parts(real, imaginary);
  const Shape shape = broadcast_shapes(real.shape(), imaginary.shape(), "complex");
  const Value parts[] = {expand(real, shape), expand(imaginary, shape)};
  return view_as_complex(stack(parts, shape.rank()));
}

Value real_part(const Value& z) { return is_complex(z.dtype()) ? select(view_as_real(z), -1, 0) : z; }
Value imaginary_part(const Value& z) { return is_complex(z.dtype()) ? select(view_as_real(z), -1, 1) : zeros_like(z); }
Value conjugate(const Value& z) { return is_complex(z.dtype()) ? conj(z) : z; }

GradRule holomorphic(GradRule rule) {
  return [rule = std::move(rule)](const GradContext& c) { return conjugated(c, rule); };
}

}  // namespace sluice::ops
