#include "graph/ops/indexing.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"

namespace sluice::ops {
namespace {

int axis_of(const Attrs& attrs, const TensorType& x) {
  SLUICE_CHECK(x.shape.rank() > 0, "x: rank is 0; must be at least 1");
  return normalize_axis(attr<int64_t>(attrs, 0), x.shape.rank(), "dim");
}

void check_not_empty(const TensorType& x, const TensorType& index, int dim) {
  SLUICE_CHECK_KIND(kIndex, x.shape[dim] > 0 || numel(index.shape) == 0,
                    "index: {} indices into axis {} of {}, which is empty; there must be none", numel(index.shape), dim,
                    x.shape.str());
}

// `index` covers a corner of x outside `dim`.
void check_covers(const TensorType& x, const TensorType& index, int dim) {
  check_index(index, "index");
  SLUICE_CHECK(index.shape.rank() == x.shape.rank(), "index: rank is {}, x has {}; they must be equal",
               index.shape.rank(), x.shape.rank());
  for (int i = 0; i < x.shape.rank(); ++i)
    SLUICE_CHECK(i == dim || index.shape[i] <= x.shape[i], "index: shape {} exceeds {} at axis {}; it must fit",
                 index.shape.str(), x.shape.str(), i);
  check_not_empty(x, index, dim);
}

void check_dtypes_agree(const TensorType& x, const TensorType& src) {
  SLUICE_CHECK_KIND(kType, x.dtype == src.dtype, "src: dtype is {}, x has {}; they must be equal",
                    dtype_name(src.dtype), dtype_name(x.dtype));
}

std::vector<TensorType> infer_gather(Types in, Present, const Attrs& attrs) {
  check_covers(in[0], in[1], axis_of(attrs, in[0]));
  return {{in[0].dtype, in[1].shape}};
}

std::vector<TensorType> infer_scatter(Types in, Present, const Attrs& attrs) {
  check_covers(in[0], in[1], axis_of(attrs, in[0]));
  check_dtypes_agree(in[0], in[2]);
  SLUICE_CHECK(in[2].shape == in[1].shape, "src: shape is {}, index has {}; they must be equal", in[2].shape.str(),
               in[1].shape.str());
  return {in[0]};
}

void check_flat_index(const TensorType& index) {
  check_index(index, "index");
  SLUICE_CHECK_KIND(kIndex, index.shape.rank() == 1, "index: rank is {}; must be 1", index.shape.rank());
}

std::vector<TensorType> infer_index_select(Types in, Present, const Attrs& attrs) {
  const int dim = axis_of(attrs, in[0]);
  check_flat_index(in[1]);
  check_not_empty(in[0], in[1], dim);
  TensorType out = in[0];
  out.shape[dim] = in[1].shape[0];
  return {out};
}

std::vector<TensorType> infer_index_add(Types in, Present, const Attrs& attrs) {
  const int dim = axis_of(attrs, in[0]);
  check_flat_index(in[1]);
  check_not_empty(in[0], in[1], dim);
  Shape wanted = in[0].shape;
  wanted[dim] = in[1].shape[0];
  check_dtypes_agree(in[0], in[2]);
  SLUICE_CHECK(in[2].shape == wanted, "src: shape is {}; must be {} (x's, with the index's length at axis {})",
               in[2].shape.str(), wanted.str(), dim);
  return {in[0]};
}

// Axes other than `dim` split all operands alike; of scatters, sums go through x and src.
std::vector<SbpRow> lines_sbp(Types in, const Attrs& attrs, bool flat_index, bool adds) {
  std::vector<SbpRow> rows = broadcast_sbp(in, attrs);
  const int dim = axis_of(attrs, in[0]);
  const auto with_index = [&](Sbp data, Sbp index) {
    std::vector<Sbp> row = {data, index};
    if (in.size() == 3) row.push_back(data);
    return row;
  };
  for (int i = 0; i < in[0].shape.rank(); ++i) {
    if (i == dim || (!flat_index && in[1].shape[i] != in[0].shape[i])) continue;
    rows.push_back(row_of(with_index(Sbp::split(i), flat_index ? Sbp::broadcast() : Sbp::split(i)), Sbp::split(i)));
  }
  if (adds || in.size() == 2)
    rows.push_back(row_of(with_index(Sbp::partial_sum(), Sbp::broadcast()), Sbp::partial_sum()));
  return rows;
}

std::vector<SbpRow> scatter_sbp(Types in, const Attrs& attrs) { return lines_sbp(in, attrs, false, false); }
// Each device may add elements of its own.
std::vector<SbpRow> scatter_add_sbp(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = lines_sbp(in, attrs, false, true);
  const Sbp own = Sbp::split(axis_of(attrs, in[0]));
  rows.push_back(row_of({Sbp::partial_sum(), own, own}, Sbp::partial_sum()));
  return rows;
}
// Each device may take elements of its own, or slices.
std::vector<SbpRow> gather_sbp(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = lines_sbp(in, attrs, false, false);
  const Sbp own = Sbp::split(axis_of(attrs, in[0]));
  rows.push_back(row_of({Sbp::broadcast(), own}, own));
  return rows;
}
std::vector<SbpRow> select_sbp(Types in, const Attrs& attrs) {
  std::vector<SbpRow> rows = lines_sbp(in, attrs, true, false);
  rows.push_back(row_of({Sbp::broadcast(), Sbp::split(0)}, Sbp::split(axis_of(attrs, in[0]))));
  return rows;
}
std::vector<SbpRow> index_add_sbp(Types in, const Attrs& attrs) { return lines_sbp(in, attrs, true, true); }

std::vector<Param> params() { return {{.name = "dim", .default_value = int64_t{0}, .required = true}}; }

// index values stay below the smallest axis the samples use.
std::vector<Sample> samples(bool flat_index, bool with_src) {
  struct Case {
    Shape x, index;
    int64_t dim;
    DType dtype = DType::kFloat32, index_dtype = DType::kInt64;
  };
  std::vector<Case> cases = {{{5}, {3}, 0},
                             {{4, 3}, {2, 3}, 0},
                             {{4, 3}, {4, 5}, -1},
                             {{2, 3, 4}, {2, 2, 4}, 1},
                             {{4, 3}, {2, 3}, 0, DType::kInt64, DType::kInt32},
                             {{4, 3}, {0, 3}, 0}};
  std::vector<Sample> out;
  for (const Case& c : cases) {
    const int dim = normalize_axis(c.dim, c.x.rank(), "dim");
    const Shape index = flat_index ? Shape{c.index[dim]} : c.index;
    Shape src = c.x;
    src[dim] = c.index[dim];
    const SampleInput x{.shape = c.x,
                        .dtype = c.dtype,
                        .low = is_floating(c.dtype) ? -1.0 : -9.0,
                        .high = is_floating(c.dtype) ? 1.0 : 9.0};
    Sample s{.inputs = {x, {.shape = index, .dtype = c.index_dtype, .low = 0, .high = 3}}, .attrs = {c.dim}};
    if (with_src) {
      s.inputs.push_back(x);
      s.inputs.back().shape = flat_index ? src : c.index;
    }
    out.push_back(s);
  }
  return out;
}

// With repeated indices which source wins is unspecified, so samples of scatter have lines of one element.
std::vector<Sample> scatter_samples() {
  std::vector<Sample> out;
  for (const Shape& shape : {Shape{5}, Shape{4, 3}, Shape{3, 2, 4}}) {
    Shape index = shape;
    index[0] = 1;
    out.push_back(
        {.inputs = {{.shape = shape}, {.shape = index, .dtype = DType::kInt64, .low = 0, .high = 3}, {.shape = index}},
         .attrs = {int64_t{0}}});
  }
  return out;
}

std::vector<Sample> reduce_samples() {
  std::vector<Sample> out;
  for (const char* reduce : {"prod", "amax", "amin"})
    for (Sample s : samples(false, true)) {
      s.attrs.emplace_back(std::string(reduce));
      out.push_back(s);
    }
  return out;
}

int64_t dim_of(const GradContext& c) { return attr<int64_t>(c.attrs, 0); }

#define DIM_DOC " int64 or int32; an index outside [0, x.shape[dim]) is an error. "

const OpDef gather_def{
    .name = "gather",
    .doc = "out[i][j] = x[index[i][j]][j] for dim 0, and so on; out has the shape of index." DIM_DOC "torch.gather.",
    .inputs = {"x", "index"},
    .params = params(),
    .infer = infer_gather,
    .grad = [](const GradContext& c) -> Values {
      return {scatter_add(zeros_like(c.inputs[0]), c.inputs[1], c.grad_outputs[0], dim_of(c)), Value()};
    },
    .sbp = gather_sbp,
    .cost = lookup_cost,
    .samples = samples(false, false)};

const OpDef scatter_def{
    .name = "scatter",
    .doc =
        "x with out[index[i][j]][j] = src[i][j] for dim 0, and so on; of a repeated index the last source stays; "
        "src has the shape of index." DIM_DOC "torch.scatter.",
    .inputs = {"x", "index", "src"},
    .params = params(),
    .infer = infer_scatter,
    .grad = [](const GradContext& c) -> Values {
      const Value &g = c.grad_outputs[0], &index = c.inputs[1];
      return {c.needs[0] ? scatter(g, index, zeros_like(c.inputs[2]), dim_of(c)) : Value(), Value(),
              c.needs[2] ? gather(g, index, dim_of(c)) : Value()};
    },
    .sbp = scatter_sbp,
    .samples = scatter_samples()};

const OpDef scatter_add_def{
    .name = "scatter_add",
    .doc = "x with src[i][j] added to out[index[i][j]][j] for dim 0, and so on; src has the shape of index." DIM_DOC
           "torch.scatter_add.",
    .inputs = {"x", "index", "src"},
    .params = params(),
    .infer = infer_scatter,
    .grad = [](const GradContext& c) -> Values {
      const Value& g = c.grad_outputs[0];
      return {g, Value(), c.needs[2] ? gather(g, c.inputs[1], dim_of(c)) : Value()};
    },
    .sbp = scatter_add_sbp,
    .samples = samples(false, true)};

// As torch: an extremum's gradient is shared evenly by x and the sources that equal it; a product's is that of the
// product of the others, so zeros are left out of it one at a time.
std::vector<Value> scatter_reduce_grad(const GradContext& c) {
  const Value &x = c.inputs[0], &index = c.inputs[1], &src = c.inputs[2], &g = c.grad_outputs[0], &y = c.outputs[0];
  const int64_t dim = dim_of(c);
  const std::string& reduce = attr<std::string>(c.attrs, 1);
  if (!is_differentiable(x.dtype())) return {Value(), Value(), Value()};
  if (reduce != "prod") {
    const Value x_is = cast(eq(x, y), x.dtype()), src_is = cast(eq(src, gather(y, index, dim)), x.dtype());
    const Value share = div(g, scatter_add(x_is, index, src_is, dim));
    return {c.needs[0] ? where(eq(x, y), share, 0.0) : Value(), Value(),
            c.needs[2] ? where(eq(src, gather(y, index, dim)), gather(share, index, dim), 0.0) : Value()};
  }
  const Value safe_x = where(eq(x, 0), 1.0, x), no_src = eq(src, 0);
  const Value zeros_there = gather(scatter_add(zeros_like(x), index, cast(no_src, x.dtype()), dim), index, dim);
  const Value alone = logical_and(no_src, eq(zeros_there, 1));
  const auto of_src = [&] {
    const Value others = scatter_reduce(x, index, where(alone, 1.0, src), dim, reduce);
    return where(alone, gather(mul(g, others), index, dim),
                 div(gather(mul(g, y), index, dim), where(no_src, 1.0, src)));
  };
  return {c.needs[0] ? div(mul(g, scatter_reduce(safe_x, index, src, dim, reduce)), safe_x) : Value(), Value(),
          c.needs[2] ? of_src() : Value()};
}

const OpDef scatter_reduce_def{
    .name = "scatter_reduce",
    .doc =
        "x with out[index[i][j]][j] combined with src[i][j] for dim 0, and so on, by `reduce`: 'prod', 'amax' or "
        "'amin'; src has the shape of index." DIM_DOC "torch.scatter_reduce.",
    .inputs = {"x", "index", "src"},
    .params = {{.name = "dim", .default_value = int64_t{0}, .required = true},
               {.name = "reduce", .default_value = std::string("prod"), .required = true}},
    .infer = [](Types in, Present present, const Attrs& attrs) -> std::vector<TensorType> {
      const std::string& reduce = attr<std::string>(attrs, 1);
      SLUICE_CHECK(reduce == "prod" || reduce == "amax" || reduce == "amin",
                   "reduce: is '{}'; must be 'prod', 'amax' or 'amin'", reduce);
      if (reduce != "prod") check_ordered(in[0]);
      return infer_scatter(in, present, attrs);
    },
    .grad = holomorphic(scatter_reduce_grad),
    .sbp = scatter_sbp,
    .samples = reduce_samples()};

const OpDef index_select_def{
    .name = "index_select",
    .doc = "The slices of x at index (n,) along `dim`." DIM_DOC "torch.index_select.",
    .inputs = {"x", "index"},
    .params = params(),
    .infer = infer_index_select,
    .grad = [](const GradContext& c) -> Values {
      return {index_add(zeros_like(c.inputs[0]), c.inputs[1], c.grad_outputs[0], dim_of(c)), Value()};
    },
    .sbp = select_sbp,
    .cost = lookup_cost,
    .samples = samples(true, false)};

const OpDef index_add_def{.name = "index_add",
                          .doc = "x with the slices of src added at index (n,) along `dim`." DIM_DOC "torch.index_add.",
                          .inputs = {"x", "index", "src"},
                          .params = params(),
                          .infer = infer_index_add,
                          .grad = [](const GradContext& c) -> Values {
                            const Value& g = c.grad_outputs[0];
                            return {g, Value(), c.needs[2] ? index_select(g, c.inputs[1], dim_of(c)) : Value()};
                          },
                          .sbp = index_add_sbp,
                          .samples = samples(true, true)};

#undef DIM_DOC

}  // namespace

std::span<const OpDef* const> indexing_ops() {
  static const OpDef* const ops[] = {&gather_def,         &scatter_def,      &scatter_add_def,
                                     &scatter_reduce_def, &index_select_def, &index_add_def};
  return ops;
}

namespace {

// As torch, these functions take a tensor without axes for one of a single element.
Value line(const Value& x) { return x.rank() == 0 ? reshape(x, {1}) : x; }

// As torch, nothing but the dim is looked at where an index has no elements.
bool names_nothing(const OpDef& op, const Value& x, const Value& index, int64_t dim) {
  if (numel(index.shape()) != 0) return false;
  normalize_axis(dim, std::max(x.rank(), 1), op.name);
  return true;
}

// The corner of src that the index covers.
Value covered(const Value& src, const Value& index) {
  bool larger = src.rank() == index.rank() && src.shape() != index.shape();
  for (int i = 0; larger && i < src.rank(); ++i) larger = src.shape()[i] >= index.shape()[i];
  if (!larger) return src;
  return slice(src, Ints(src.rank(), 0), index.shape().vec(), Ints(src.rank(), 1));
}

Value scattered(const OpDef& op, const Value& x, const Value& index, const Value& src, Attrs attrs) {
  if (names_nothing(op, x, index, std::get<int64_t>(attrs[0]))) {
    check_dtypes_agree(x.type(), src.type());
    const Ints none(std::max(x.rank(), 1), 0);
    const Value of_src = reshape(slice(reshape(src, {-1}), {0}, {0}, {1}), none);
    return reshape(call1(op, {line(x), zeros(Shape(none), DType::kInt64), of_src}, std::move(attrs)), x.shape().vec());
  }
  const Value places = line(index);
  return reshape(call1(op, {line(x), places, covered(line(src), places)}, std::move(attrs)), x.shape().vec());
}

}  // namespace

Value gather(const Value& x, const Value& index, int64_t dim) {
  if (names_nothing(gather_def, x, index, dim))
    return reshape(index_select(reshape(x, {-1}), zeros({0}, DType::kInt64), 0), index.shape().vec());
  return reshape(call1(gather_def, {line(x), line(index)}, {dim}), index.shape().vec());
}
Value scatter(const Value& x, const Value& index, const Value& src, int64_t dim) {
  return scattered(scatter_def, x, index, src, {dim});
}
Value scatter_add(const Value& x, const Value& index, const Value& src, int64_t dim) {
  return scattered(scatter_add_def, x, index, src, {dim});
}
Value scatter_reduce(const Value& x, const Value& index, const Value& src, int64_t dim, const std::string& reduce) {
  return scattered(scatter_reduce_def, x, index, src, {dim, reduce});
}
Value index_select(const Value& x, const Value& index, int64_t dim) {
  SLUICE_CHECK(x.rank() > 0 || numel(index.shape()) == 1,
               "index_select: index to a scalar can have only 1 value: got {}; it must be one", numel(index.shape()));
  const Value y = call1(index_select_def, {line(x), line(index)}, {dim});
  return x.rank() == 0 ? reshape(y, {}) : y;
}
Value index_add(const Value& x, const Value& index, const Value& src, int64_t dim) {
  normalize_axis(dim, std::max(x.rank(), 1), "index_add: dim");
  SLUICE_CHECK_KIND(kRuntime, x.dtype() == src.dtype(), "index_add: source has dtype {}; must be the input's, {}",
                    dtype_name(src.dtype()), dtype_name(x.dtype()));
  SLUICE_CHECK_KIND(kRuntime, x.rank() == src.rank() && (x.rank() > 0 || numel(index.shape()) == 1),
                    "index_add: source tensor shape must match self tensor shape, excluding the specified dimension: "
                    "source is {} at {} indices; the input is {}",
                    src.shape().str(), numel(index.shape()), x.shape().str());
  return reshape(call1(index_add_def, {line(x), line(index), line(src)}, {dim}), x.shape().vec());
}

Value take_along(const Value& x, const Value& index, int64_t dim) {
  Shape x_shape = x.shape(), index_shape = index.shape();
  SLUICE_CHECK_KIND(kRuntime, x_shape.rank() == index_shape.rank(),
                    "take_along_dim: ranks differ: {} and {}; they must be equal", x_shape.str(), index_shape.str());
  SLUICE_CHECK_KIND(kRuntime, index.dtype() == DType::kInt64 || index.dtype() == DType::kInt32,
                    "take_along_dim: indices have dtype {}; must be int64", dtype_name(index.dtype()));
  SLUICE_CHECK_KIND(kIndex, x_shape.rank() > 0, "take_along_dim: dim is {}; the tensor has no dimensions", dim);
  const int axis = normalize_axis(dim, x.rank(), "take_along_dim");
  x_shape[axis] = index_shape[axis] = 1;
  Shape common = broadcast_shapes(x_shape, index_shape, "take_along_dim");
  x_shape = index_shape = common;
  x_shape[axis] = x.shape()[axis];
  index_shape[axis] = index.shape()[axis];
  return gather(expand(x, x_shape), expand(index, index_shape), axis);
}

Value one_hot(const Value& index, int64_t num_classes) {
  Ints shape = index.shape().vec();
  shape.push_back(1);
  return cast(eq(reshape(index, shape), iota(0, 1, num_classes, index.dtype())), DType::kInt64);
}

}  // namespace sluice::ops
