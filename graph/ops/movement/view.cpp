// reshape, permute, expand, slice: ops whose output lies in the input's memory.
#include <algorithm>
#include <array>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/grad_parts.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"

namespace sluice::ops {
namespace {

using ViewSpec = OpDef::ViewSpec;

// --- reshape ---

Shape resolve_shape(const Shape& from, const Ints& wanted) {
  Shape to{std::span<const int64_t>(wanted)};
  int64_t known = 1;
  int free = -1;
  for (int i = 0; i < to.rank(); ++i) {
    if (to[i] == -1) {
      SLUICE_CHECK(free < 0, "shape: two dims are -1: {}; only one can be inferred", to.str());
      free = i;
    } else {
      SLUICE_CHECK(to[i] >= 0, "shape: negative dim: {}; dims must be >= 0, or -1 once", to.str());
      known = static_cast<int64_t>(checked_mul(known, to[i]));
    }
  }
  const int64_t n = numel(from);
  if (free >= 0) {
    SLUICE_CHECK(known > 0 && n % known == 0, "shape: cannot infer -1: {} from {}; {} elements must divide by {}",
                 to.str(), from.str(), n, known);
    to[free] = n / known;
  }
  SLUICE_CHECK(numel(to) == n, "shape: sizes differ: {} has {} elements, {} has {}; they must be equal", from.str(), n,
               to.str(), numel(to));
  return to;
}

// Groups of input axes that follow each other in memory are cut anew; a group must end where dims of `to` end.
std::optional<Strides> reshape_strides(const Shape& from, const Strides& strides, const Shape& to) {
  Strides out = contiguous_strides(to);
  if (numel(from) == 0 || from.rank() == 0) return out;
  int j = to.rank() - 1;
  int64_t base = strides[from.rank() - 1], size = 1, viewed = 1;
  for (int i = from.rank() - 1; i >= 0; --i) {
    size *= from[i];
    const bool group_ends = i == 0 || (from[i - 1] != 1 && strides[i - 1] != size * base);
    if (!group_ends) continue;
    while (j >= 0 && (viewed < size || to[j] == 1)) {
      out[j] = viewed * base;
      viewed *= to[j--];
    }
    if (viewed != size) return std::nullopt;
    if (i > 0) {
      base = strides[i - 1];
      size = viewed = 1;
    }
  }
  return j < 0 ? std::optional(out) : std::nullopt;
}

const OpDef reshape_def{
    .name = "reshape",
    .doc =
        "The elements in row-major order under another shape; one dim may be -1. A view where strides allow. "
        "torch.reshape.",
    .inputs = {"x"},
    .params = {{.name = "shape", .default_value = Ints{}, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      return {{in[0].dtype, resolve_shape(in[0].shape, attr<Ints>(attrs, 0))}};
    },
    .grad = [](const GradContext& c) -> Values { return {reshape(c.grad_outputs[0], c.inputs[0].shape().vec())}; },
    .sbp =
        [](Types in, const Attrs& attrs) {
          // Axes that lead groups of the same elements: parts of one are parts of the other where both divide.
          const Shape &from = in[0].shape, to = resolve_shape(from, attr<Ints>(attrs, 0));
          std::vector<SbpRow> rows = untouched_sbp(in, {});
          int64_t before_in = 1;
          for (int i = 0; i < from.rank(); before_in *= from[i++]) {
            int64_t before_out = 1;
            for (int j = 0; j < to.rank(); before_out *= to[j++])
              if (before_in == before_out && from[i] > 1 && to[j] > 1)
                rows.push_back(row_of({Sbp::split(i)}, Sbp::split(j)));
          }
          return rows;
        },
    .localize = localize_shape,
    .view = [](const TensorSpec& input, const Attrs& attrs) -> std::optional<ViewSpec> {
      const Shape to = resolve_shape(input.shape, attr<Ints>(attrs, 0));
      const auto strides = reshape_strides(input.shape, input.strides, to);
      if (!strides) return std::nullopt;
      return ViewSpec{to, *strides, 0};
    },
    .unview = [](const Value& base, const Attrs&, const Value& value) { return reshape(value, base.shape().vec()); },
    .samples = {{.inputs = {{.shape = {}}}, .attrs = {Ints{1, 1}}},
                {.inputs = {{.shape = {6}}}, .attrs = {Ints{2, 3}}},
                {.inputs = {{.shape = {2, 3, 4}}}, .attrs = {Ints{-1, 4}}},
                {.inputs = {{.shape = {4, 6}}}, .attrs = {Ints{-1, 2, 3}}},
                {.inputs = {{.shape = {2, 6}, .dtype = DType::kInt64}}, .attrs = {Ints{3, 4}}},
                {.inputs = {{.shape = {0, 3}}}, .attrs = {Ints{3, 0}}}}};

// --- permute ---

std::vector<int> normalized_permutation(const Ints& dims, int rank) {
  SLUICE_CHECK(static_cast<int>(dims.size()) == rank, "dims: {} axes given for rank {}; name every axis once",
               dims.size(), rank);
  std::vector<int> order;
  for (int64_t d : dims) {
    const int axis = normalize_axis(d, rank, "dims");
    SLUICE_CHECK(std::find(order.begin(), order.end(), axis) == order.end(),
                 "dims: axis given twice: {}; name every axis once", attr_str(dims));
    order.push_back(axis);
  }
  return order;
}

Ints inverse_permutation(const Ints& dims, int rank) {
  const std::vector<int> order = normalized_permutation(dims, rank);
  Ints inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return inverse;
}

const OpDef permute_def{
    .name = "permute",
    .doc = "Axes in another order: out.shape[i] = x.shape[dims[i]]. A view. torch.permute.",
    .inputs = {"x"},
    .params = {{.name = "dims", .default_value = Ints{}, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      TensorType out{in[0].dtype, {}};
      for (int axis : normalized_permutation(attr<Ints>(attrs, 0), in[0].shape.rank()))
        out.shape.push_back(in[0].shape[axis]);
      return {out};
    },
    .grad = [](const GradContext& c) -> Values {
      return {permute(c.grad_outputs[0], inverse_permutation(attr<Ints>(c.attrs, 0), c.inputs[0].rank()))};
    },
    .sbp =
        [](Types in, const Attrs& attrs) {
          std::vector<SbpRow> rows = untouched_sbp(in, {});
          const std::vector<int> order = normalized_permutation(attr<Ints>(attrs, 0), in[0].shape.rank());
          for (size_t i = 0; i < order.size(); ++i)
            rows.push_back(row_of({Sbp::split(order[i])}, Sbp::split(static_cast<int>(i))));
          return rows;
        },
    .view = [](const TensorSpec& input, const Attrs& attrs) -> std::optional<ViewSpec> {
      ViewSpec v;
      for (int axis : normalized_permutation(attr<Ints>(attrs, 0), input.shape.rank())) {
        v.shape.push_back(input.shape[axis]);
        v.strides.push_back(input.strides[axis]);
      }
      return v;
    },
    .unview =
        [](const Value&, const Attrs& attrs, const Value& value) {
          return permute(value, inverse_permutation(attr<Ints>(attrs, 0), value.rank()));
        },
    .samples = {{.inputs = {{.shape = {}}}, .attrs = {Ints{}}},
                {.inputs = {{.shape = {3, 4}}}, .attrs = {Ints{1, 0}}},
                {.inputs = {{.shape = {2, 3, 4}}}, .attrs = {Ints{-1, 0, 1}}},
                {.inputs = {{.shape = {2, 3, 4, 5}, .dtype = DType::kInt32}}, .attrs = {Ints{0, 2, 3, 1}}},
                {.inputs = {{.shape = {0, 3}}}, .attrs = {Ints{1, 0}}}}};

// --- expand ---

Shape expanded_shape(const Shape& from, const Ints& wanted) {
  Shape to{std::span<const int64_t>(wanted)};
  const int shift = to.rank() - from.rank();
  SLUICE_CHECK(shift >= 0, "shape: rank {} is below the input's: {}; it must be at least {}", to.rank(), from.str(),
               from.rank());
  for (int i = 0; i < to.rank(); ++i) {
    const bool own = i >= shift;
    if (to[i] == -1 && own) to[i] = from[i - shift];
    SLUICE_CHECK(own ? to[i] == from[i - shift] || (from[i - shift] == 1 && to[i] >= 0) : to[i] >= 0,
                 "shape: {} does not expand to {} at axis {}; sizes must be equal, or 1 in the input", from.str(),
                 Shape(wanted).str(), i);
  }
  return to;
}

const OpDef expand_def{
    .name = "expand",
    .doc = "Repeats axes of size 1, and adds axes in front, up to `shape`; -1 keeps a size. A view. torch.expand.",
    .inputs = {"x"},
    .params = {{.name = "shape", .default_value = Ints{}, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      return {{in[0].dtype, expanded_shape(in[0].shape, attr<Ints>(attrs, 0))}};
    },
    .grad = [](const GradContext& c) -> Values { return {sum_to(c.grad_outputs[0], c.inputs[0].shape())}; },
    .sbp =
        [](Types in, const Attrs& attrs) {
          std::vector<SbpRow> rows = untouched_sbp(in, {});
          const Shape to = expanded_shape(in[0].shape, attr<Ints>(attrs, 0));
          const int shift = to.rank() - in[0].shape.rank();
          for (int i = 0; i < in[0].shape.rank(); ++i)
            if (to[i + shift] == in[0].shape[i]) rows.push_back(row_of({Sbp::split(i)}, Sbp::split(i + shift)));
          return rows;
        },
    .localize = localize_shape,
    .view = [](const TensorSpec& input, const Attrs& attrs) -> std::optional<ViewSpec> {
      ViewSpec v;
      v.shape = expanded_shape(input.shape, attr<Ints>(attrs, 0));
      const int shift = v.shape.rank() - input.shape.rank();
      v.strides = Shape::filled(v.shape.rank(), 0);
      for (int i = v.shape.rank() - 1; i >= 0; --i) {
        const bool behind = i + 1 < v.shape.rank();
        if (i >= shift && input.shape[i - shift] == v.shape[i])
          v.strides[i] = input.strides[i - shift];
        else if (v.shape[i] == 1 &&  // nothing is repeated: as torch, it continues what is behind it
                 (!behind || __builtin_mul_overflow(v.shape[i + 1], v.strides[i + 1], &v.strides[i])))
          v.strides[i] = 1;
      }
      return v;
    },
    .unview = [](const Value& base, const Attrs&, const Value& value) -> Value {
      if (numel(value.shape()) == 0) return base;
      SLUICE_CHECK_KIND(kUnsupported, numel(value.shape()) == numel(base.shape()),
                        "assign: a view made by expand shows elements of {} more than once: {}; write to a clone()",
                        base.type().str(), value.type().str());
      return reshape(value, base.shape().vec());
    },
    .samples = {{.inputs = {{.shape = {}}}, .attrs = {Ints{2, 3}}},
                {.inputs = {{.shape = {4}}}, .attrs = {Ints{3, 4}}},
                {.inputs = {{.shape = {3, 1}}}, .attrs = {Ints{-1, 4}}},
                {.inputs = {{.shape = {2, 1, 3}}}, .attrs = {Ints{2, 2, 4, 3}}},
                {.inputs = {{.shape = {1, 3}}}, .attrs = {Ints{0, 3}}}}};

// --- slice ---

struct SliceAxis {
  int64_t start, length, step;
};

std::vector<SliceAxis> slice_axes(const Shape& shape, const Attrs& attrs) {
  const Ints &starts = attr<Ints>(attrs, 0), &stops = attr<Ints>(attrs, 1), &steps = attr<Ints>(attrs, 2);
  const size_t rank = static_cast<size_t>(shape.rank());
  SLUICE_CHECK(starts.size() == rank && stops.size() == rank && steps.size() == rank,
               "starts, stops, steps: {}, {}, {} values for rank {}; give one per axis", starts.size(), stops.size(),
               steps.size(), rank);
  std::vector<SliceAxis> axes;
  for (size_t i = 0; i < rank; ++i) {
    SLUICE_CHECK(starts[i] >= 0 && steps[i] >= 1, "axis {}: start {}, step {}; start must be >= 0 and step >= 1", i,
                 starts[i], steps[i]);
    const int64_t start = std::min(starts[i], shape[i]), stop = std::clamp(stops[i], start, shape[i]);
    axes.push_back({start, stop == start ? 0 : (stop - start - 1) / steps[i] + 1, steps[i]});
  }
  return axes;
}

Value unview_slice(const Value& base, const Attrs& attrs, const Value& value) {
  if (numel(value.shape()) == 0) return base;
  if (value.shape() == base.shape()) return value;
  Ints low, high, interior;
  for (const SliceAxis& a : slice_axes(base.shape(), attrs)) {
    const int axis = static_cast<int>(low.size());
    low.push_back(a.start);
    high.push_back(base.shape()[axis] - a.start - (a.length - 1) * a.step - 1);
    interior.push_back(a.step - 1);
  }
  // Constant, so it is computed while tracing.
  const Value mask = pad(full(value.shape(), 1, DType::kBool), low, high, 0, interior);
  return where(mask, pad(value, low, high, 0, interior), base);
}

const OpDef slice_def{
    .name = "slice",
    .doc =
        "Elements start, start + step, ... below stop, per axis; start and stop are cut to the size. A view. "
        "Python's x[start:stop:step] with step >= 1.",
    .inputs = {"x"},
    .params = {{.name = "starts", .default_value = Ints{}, .required = true},
               {.name = "stops", .default_value = Ints{}, .required = true},
               {.name = "steps", .default_value = Ints{}, .required = true}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      TensorType out{in[0].dtype, {}};
      for (const SliceAxis& a : slice_axes(in[0].shape, attrs)) out.shape.push_back(a.length);
      return {out};
    },
    .grad = [](const GradContext& c) -> Values {
      Ints low, high, interior;
      const Shape& shape = c.inputs[0].shape();
      for (const SliceAxis& a : slice_axes(shape, c.attrs)) {
        const int64_t covered = a.length == 0 ? 0 : (a.length - 1) * a.step + 1;
        low.push_back(a.start);
        high.push_back(shape[static_cast<int>(low.size()) - 1] - a.start - covered);
        interior.push_back(a.step - 1);
      }
      return {pad(c.grad_outputs[0], low, high, 0, interior)};
    },
    .sbp =
        [](Types in, const Attrs& attrs) {
          const Ints &starts = attr<Ints>(attrs, 0), &stops = attr<Ints>(attrs, 1), &steps = attr<Ints>(attrs, 2);
          std::vector<int> whole;
          for (int i = 0; i < in[0].shape.rank(); ++i)
            if (starts[i] == 0 && stops[i] >= in[0].shape[i] && steps[i] == 1) whole.push_back(i);
          return untouched_sbp(in, whole);
        },
    .view = [](const TensorSpec& input, const Attrs& attrs) -> std::optional<ViewSpec> {
      ViewSpec v;
      for (const SliceAxis& a : slice_axes(input.shape, attrs)) {
        const int i = v.shape.rank();
        v.offset += a.length > 0 ? a.start * input.strides[i] : 0;
        v.shape.push_back(a.length);
        int64_t stride = 1;  // too large a step leaves one element, whose stride means nothing
        if (__builtin_mul_overflow(input.strides[i], a.step, &stride)) stride = 1;
        v.strides.push_back(stride);
      }
      if (numel(v.shape) == 0) v.offset = 0;
      return v;
    },
    .unview = unview_slice,
    .samples = {{.inputs = {{.shape = {7}}}, .attrs = {Ints{2}, Ints{5}, Ints{1}}},
                {.inputs = {{.shape = {7}}}, .attrs = {Ints{1}, Ints{7}, Ints{3}}},
                {.inputs = {{.shape = {4, 6}}}, .attrs = {Ints{0, 1}, Ints{4, 6}, Ints{1, 2}}},
                {.inputs = {{.shape = {2, 3, 4}, .dtype = DType::kInt64}},
                 .attrs = {Ints{1, 0, 1}, Ints{2, 3, 3}, Ints{1, 2, 1}}},
                {.inputs = {{.shape = {4, 3}}}, .attrs = {Ints{2, 0}, Ints{2, 3}, Ints{1, 1}}}}};

}  // namespace

std::span<const OpDef* const> view_ops() {
  static const OpDef* const ops[] = {&reshape_def, &permute_def, &expand_def, &slice_def};
  return ops;
}

Value reshape(const Value& x, const Ints& shape) {
  return Shape(shape) == x.shape() ? x : call1(reshape_def, {x}, {shape});
}
Value permute(const Value& x, const Ints& dims) { return call1(permute_def, {x}, {dims}); }
Value expand(const Value& x, const Shape& shape) {
  return shape == x.shape() ? x : call1(expand_def, {x}, {shape.vec()});
}
std::optional<GradPart> grad_part(const OpDef& op, const TensorType& input, const Attrs& attrs, const Value& grad) {
  if (&op != &slice_def || !grad.defined() || grad.dtype() != input.dtype) return std::nullopt;
  const std::vector<SliceAxis> axes = slice_axes(input.shape, attrs);
  int cut = -1;
  for (int i = 0; i < input.shape.rank(); ++i) {
    const SliceAxis& axis = axes[i];
    if (axis.length == input.shape[i]) continue;
    if (cut >= 0 || axis.length == 0 || (axis.step != 1 && axis.length != 1)) return std::nullopt;
    cut = i;
  }
  if (cut < 0) return std::nullopt;
  return GradPart{grad, cut, axes[cut].start, input.shape[cut]};
}

Value slice(const Value& x, const Ints& starts, const Ints& stops, const Ints& steps) {
  return call1(slice_def, {x}, {starts, stops, steps});
}

Value slice_axis(const Value& x, int64_t dim, int64_t start, int64_t stop, int64_t step) {
  const int axis = normalize_axis(dim, x.rank(), "slice");
  SLUICE_CHECK(x.rank() > 0, "slice: the tensor has rank 0; it must have an axis");
  const int64_t size = x.shape()[axis];
  if (start < 0) start += size;
  if (stop < 0) stop += size;
  Ints starts(x.rank(), 0), stops = x.shape().vec(), steps(x.rank(), 1);
  starts[axis] = std::clamp<int64_t>(start, 0, size);
  stops[axis] = std::clamp<int64_t>(stop, starts[axis], size);
  steps[axis] = step;
  return slice(x, starts, stops, steps);
}

}  // namespace sluice::ops
