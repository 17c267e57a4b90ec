// Torch's spelling of joining and cutting tensors by NumPy's names, and of repeating and turning them.
#include <algorithm>
#include <numeric>

#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

// With at least so many dims, as NumPy adds them.
template <int dims>
Value at_least(const Value& x) {
  const Ints s = x.shape().vec();
  if (x.rank() >= dims) return x;
  if (dims == 1 || x.rank() == 0) return reshape(x, Ints(dims, 1));
  if (dims == 2) return reshape(x, {1, s[0]});
  return x.rank() == 1 ? reshape(x, {1, s[0], 1}) : reshape(x, {s[0], s[1], 1});
}

template <int dims>
std::vector<Value> all_at_least(const std::vector<Value>& tensors) {
  std::vector<Value> out;
  for (const Value& t : tensors) out.push_back(at_least<dims>(t));
  return out;
}

void check_some(const char* name, const std::vector<Value>& tensors) {
  SLUICE_CHECK_KIND(kRuntime, !tensors.empty(), "{}: expects a non-empty TensorList: got no tensors", name);
}

Value dstack(const std::vector<Value>& tensors) {
  check_some("dstack", tensors);
  return concat(all_at_least<3>(tensors), 2);
}

Value column_stack(const std::vector<Value>& tensors) {
  check_some("column_stack", tensors);
  std::vector<Value> columns;
  for (const Value& t : tensors) columns.push_back(t.rank() < 2 ? reshape(t, {numel(t.shape()), 1}) : t);
  return concat(columns, 1);
}

// --- Cutting ---

using Parts = std::vector<Value>;

int axis_to_cut(const char* name, const Value& x, int64_t dim) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() > 0,
                    "{}: expected at least a 1-dimensional tensor, but got a tensor with 0 dims", name);
  return normalize_axis(dim, x.rank(), name);
}

Parts into_sections(const char* name, const Value& x, int64_t sections, int64_t dim) {
  const int axis = axis_to_cut(name, x, dim);
  SLUICE_CHECK_KIND(kRuntime, sections > 0, "{}: number of sections must be larger than 0, got {}", name, sections);
  SLUICE_CHECK_KIND(kRuntime, sections <= (int64_t{1} << 24), "{}: would give {} tensors; must be at most {}", name,
                    sections, int64_t{1} << 24);
  const int64_t size = x.shape()[axis];
  Parts parts;
  for (int64_t i = 0, at = 0; i < sections; ++i) {
    const int64_t n = size / sections + (i < size % sections);
    parts.push_back(slice_axis(x, axis, at, at + n));
    at += n;
  }
  return parts;
}

Parts at_indices(const char* name, const Value& x, const Ints& indices, int64_t dim) {
  const int axis = axis_to_cut(name, x, dim);
  Parts parts;
  int64_t at = 0;
  for (int64_t index : indices) {
    parts.push_back(slice_axis(x, axis, at, index));
    at = index;
  }
  parts.push_back(slice_axis(x, axis, at, x.shape()[axis]));
  return parts;
}

// hsplit, vsplit, dsplit: along the dim of that name, into equal parts or at indices.
Form named_split(const char* title, const char* doc, int least, int dim) {
  const std::string name = title;
  const auto axis = [=](const Value& x) {
    SLUICE_CHECK_KIND(kRuntime, x.rank() >= least,
                      "{0}: requires a tensor with at least {1} dimension, but got a tensor with {2} dimensions!",
                      title, least, x.rank());
    return x.rank() == 1 ? 0 : dim;
  };
  const auto into = [=](const Value& x, int64_t sections) {
    const int along = axis(x);
    SLUICE_CHECK_KIND(kRuntime, sections > 0 && x.shape()[along] % sections == 0,
                      "{}: attempted to split along dimension {}, but the size of the dimension {} is not "
                      "divisible by the split_size {}!",
                      title, along, x.shape()[along], sections);
    return into_sections(title, x, sections, along);
  };
  const auto at = [=](const Value& x, const Ints& indices) { return at_indices(title, x, indices, axis(x)); };
  return {.doc = doc,
          .overloads = {overload(name + "(Tensor input, int sections) -> Tensor[]", into),
                        overload(name + "(Tensor input, int[] indices) -> Tensor[]", at)},
          .sharing = Sharing::kView};
}

// --- Combinations ---

Value cartesian_prod(const std::vector<Value>& tensors) {
  check_some("cartesian_prod", tensors);
  Shape shape;
  for (const Value& t : tensors) {
    SLUICE_CHECK_KIND(kRuntime, t.rank() == 1, "cartesian_prod: Expect a 1D vector, but got shape {}", t.shape().str());
    shape.push_back(t.shape()[0]);
  }
  if (tensors.size() == 1) return tensors[0];
  std::vector<Value> columns;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Ints along(tensors.size(), 1);
    along[i] = tensors[i].shape()[0];
    columns.push_back(reshape(expand(reshape(tensors[i], along), shape), {-1}));
  }
  return stack(columns, 1);
}

// --- Turning ---

Value rot90(const Value& x, int64_t k, const Ints& dims) {
  SLUICE_CHECK_KIND(kRuntime, dims.size() == 2, "rot90: expected total rotation dims == 2, but got dims = {}",
                    dims.size());
  SLUICE_CHECK_KIND(kRuntime, x.rank() >= 2, "rot90: expected total dims >= 2, but got total dims = {}", x.rank());
  const int64_t a = normalize_axis(dims[0], x.rank(), "rot90"), b = normalize_axis(dims[1], x.rank(), "rot90");
  SLUICE_CHECK_KIND(kRuntime, a != b, "rot90: expected rotation dims to be different, but got {} and {}", dims[0],
                    dims[1]);
  switch ((k % 4 + 4) % 4) {
    case 1: return transpose(flip(x, {b}), a, b);
    case 2: return flip(x, {a, b});
    case 3: return transpose(flip(x, {a}), a, b);
    default: return copy(x);
  }
}

Value fliplr(const Value& x) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() >= 2, "fliplr: Input must be >= 2-d: got {} dims", x.rank());
  return flip(x, {1});
}
Value flipud(const Value& x) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() >= 1, "flipud: Input must be >= 1-d: got {} dims", x.rank());
  return flip(x, {0});
}

Value adjoint(const Value& x) {
  if (x.rank() == 0) return x;
  SLUICE_CHECK_KIND(kRuntime, x.rank() >= 2, "adjoint: expects matrices: got a tensor with {} dims", x.rank());
  return conjugate(transpose(x, -2, -1));
}

Value ravel(const Value& x) { return reshape(x, {-1}); }

Parts split_with_sizes(const Value& x, const Ints& sizes, int64_t dim) { return split(x, sizes, dim); }

Form joined(const char* doc, Overload made, std::vector<const char*> aliases = {}) {
  return {.doc = doc, .overloads = {std::move(made)}, .aliases = std::move(aliases), .method = false, .out = true};
}

template <int dims>
Form at_least_form() {
  const std::string name = "atleast_" + std::to_string(dims) + "d";
  static const std::string doc =
      "With at least " + std::to_string(dims) + " dims, as NumPy adds them; of several, a tuple. torch." + name + ".";
  return {.doc = doc.c_str(),
          .overloads = {overload(name + "(Tensor input) -> Tensor", &at_least<dims>),
                        overload(name + "(Tensor... tensors) -> Tensor[]", &all_at_least<dims>)},
          .method = false,
          .sharing = Sharing::kItself};
}

}  // namespace

Parts tensor_split(const Value& x, int64_t sections, int64_t dim) {
  return into_sections("tensor_split", x, sections, dim);
}
Parts tensor_split(const Value& x, const Ints& indices, int64_t dim) {
  return at_indices("tensor_split", x, indices, dim);
}

std::vector<Form> stacking_forms() {
  std::vector<Form> forms = {
      at_least_form<1>(),
      at_least_form<2>(),
      at_least_form<3>(),
      joined("Tensors along the third dim. torch.dstack.", overload("dstack(Tensor[] tensors) -> Tensor", &dstack)),
      joined("Tensors side by side, vectors as columns. torch.column_stack.",
             overload("column_stack(Tensor[] tensors) -> Tensor", &column_stack)),
      named_split("hsplit", "Parts side by side, equal ones or cut at indices: views. torch.hsplit.", 1, 1),
      named_split("vsplit", "Parts on top of each other, equal ones or cut at indices: views. torch.vsplit.", 2, 0),
      named_split("dsplit", "Parts along the third dim, equal ones or cut at indices: views. torch.dsplit.", 3, 2),
      {.doc = "Parts of these sizes along a dim: views. torch.split_with_sizes.",
       .overloads = {overload("split_with_sizes(Tensor input, int[] split_sizes, int dim=0) -> Tensor[]",
                              &split_with_sizes)},
       .sharing = Sharing::kView},
      {.doc = "All tuples of one element of each vector, as rows. torch.cartesian_prod.",
       .overloads = {overload("cartesian_prod(Tensor... tensors) -> Tensor", &cartesian_prod)},
       .method = false},
      {.doc = "Turned k times by 90 degrees in the plane of two dims, from the first to the second. torch.rot90.",
       .overloads = {overload("rot90(Tensor input, int k=1, int[] dims=[0, 1]) -> Tensor", &rot90)}},
      {.doc = "The second dim in reverse. torch.fliplr.",
       .overloads = {overload("fliplr(Tensor input) -> Tensor", &fliplr)}},
      {.doc = "The first dim in reverse. torch.flipud.",
       .overloads = {overload("flipud(Tensor input) -> Tensor", &flipud)}},
      {.doc = "Matrices transposed and conjugated: of real numbers a view. torch.adjoint.",
       .overloads = {overload("adjoint(Tensor input) -> Tensor", &adjoint)},
       .sharing = Sharing::kView},
      {.doc = "The elements as a vector: a view where the strides allow. torch.ravel.",
       .overloads = {overload("ravel(Tensor input) -> Tensor", &ravel)},
       .sharing = Sharing::kView},
  };
  return forms;
}

}  // namespace sluice::ops
