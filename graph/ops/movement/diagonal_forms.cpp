// Torch's spelling of diagonals, of views with strides of their own, and of writing parts of a tensor into a new one.
#include <algorithm>
#include <limits>

#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/lines.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/strided_view.h"

namespace sluice::ops {
namespace {

// Matrices whose diagonal `offset` is the last axis of x, zero elsewhere: the last two axes.
Value matrices_of(const Value& x, int64_t offset) {
  const int64_t n = x.shape().back(), size = n + std::abs(offset);
  const Value rows = reshape(iota(0, 1, size), {size, 1}), columns = iota(0, 1, size);
  Ints low(x.rank(), 0), high(x.rank(), 0);
  (offset >= 0 ? high : low).back() = size - n;  // where row i has its element
  const Value spread = unsqueeze(pad(x, low, high), -1);
  return where(eq(columns, add(rows, offset)), spread, zeros({}, x.dtype()));
}

Value diag_embed(const Value& x, int64_t offset, int64_t dim1, int64_t dim2) {
  SLUICE_CHECK_KIND(kIndex, x.rank() > 0, "diag_embed: input has rank 0; must have an axis");
  const int rank = x.rank() + 1, a = normalize_axis(dim1, rank, "diag_embed"),
            b = normalize_axis(dim2, rank, "diag_embed");
  SLUICE_CHECK_KIND(kRuntime, a != b, "diag_embed: diagonal dimensions cannot be identical {}, {}; they must differ",
                    dim1, dim2);
  const Value matrices = matrices_of(x, offset);
  Ints order;
  for (int i = 0, next = 0; i < rank; ++i) order.push_back(i == a ? rank - 2 : i == b ? rank - 1 : next++);
  return permute(matrices, order);
}

Value diag(const Value& x, int64_t offset) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() == 1 || x.rank() == 2,
                    "diag: Supports 1D or 2D tensors. Got {}D; it must be a vector or a matrix", x.rank());
  return x.rank() == 1 ? matrices_of(x, offset) : copy(diagonal(x, offset));
}

Value diagflat(const Value& x, int64_t offset) { return matrices_of(reshape(x, {-1}), offset); }

Value trace(const Value& x) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() == 2, "trace: expected a matrix: got {} dims", x.rank());
  return sum(diagonal(x));
}

// x with `view` of it, which is of these shapes, replaced by src.
Value scattered_view(const char* name, const Value& x, const Value& src, const Value& view,
                     const std::function<Value(const Value& at)>& part) {
  SLUICE_CHECK_KIND(kRuntime, src.shape() == view.shape(),
                    "{}: expected src to have a size equal to the slice of self: got {}; must be {}", name,
                    src.shape().str(), view.shape().str());
  // The positions of the part, in a vector with those of all elements.
  const Ints all{numel(x.shape())};
  const Value places = part(reshape(iota(0, 1, all[0]), x.shape().vec()));
  const Value flat = reshape(copy(places), {-1});
  const Value source = cast(reshape(src, {-1}), x.dtype());
  return reshape(scatter(reshape(x, all), flat, source, 0), x.shape().vec());
}

Value diagonal_scatter(const Value& x, const Value& src, int64_t offset, int64_t dim1, int64_t dim2) {
  const auto part = [&](const Value& v) { return diagonal(v, offset, dim1, dim2); };
  return scattered_view("diagonal_scatter", x, src, part(x), part);
}

Value select_scatter(const Value& x, const Value& src, int64_t dim, int64_t index) {
  const auto part = [&](const Value& v) { return select(v, dim, index); };
  return scattered_view("select_scatter", x, src, part(x), part);
}

Value slice_scatter(const Value& x, const Value& src, int64_t dim, const std::optional<int64_t>& start,
                    const std::optional<int64_t>& end, int64_t step) {
  SLUICE_CHECK_KIND(kRuntime, step > 0, "slice_scatter: slice step must be positive: got {}", step);
  const auto part = [&](const Value& v) {
    return slice_axis(v, dim, start.value_or(0), end.value_or(std::numeric_limits<int64_t>::max()), step);
  };
  return scattered_view("slice_scatter", x, src, part(x), part);
}

Value block_diag(const std::vector<Value>& tensors) {
  std::vector<Value> rows;
  int64_t columns = 0, before = 0;
  DType dtype = tensors.empty() ? default_dtype() : tensors[0].dtype();
  for (const Value& t : tensors) {
    SLUICE_CHECK_KIND(kRuntime, t.rank() <= 2, "block_diag: Input tensors must have 2 or fewer dimensions. Got {}",
                      t.rank());
    dtype = promote(dtype, t.dtype());
    columns += t.rank() == 0 ? 1 : t.shape().back();
  }
  for (const Value& t : tensors) {
    const Value matrix = t.rank() == 2 ? t : reshape(t, {1, numel(t.shape())});
    const int64_t width = matrix.shape()[1];
    rows.push_back(pad(cast(matrix, dtype), {0, before}, {0, columns - before - width}));
    before += width;
  }
  return rows.empty() ? zeros({1, 0}, dtype) : concat(rows, 0);
}

// Column i has x to the power of N - 1 - i, or of i.
Value vander(const Value& x, const std::optional<int64_t>& n, bool increasing) {
  SLUICE_CHECK_KIND(kRuntime, x.rank() == 1, "vander: x must be a one-dimensional tensor: got {} dims", x.rank());
  const int64_t columns = n.value_or(x.shape()[0]);
  SLUICE_CHECK_KIND(kRuntime, columns >= 0, "vander: N must be non-negative: got {}", columns);
  const Value base = is_floating(x.dtype()) || is_complex(x.dtype()) ? x : cast(x, DType::kInt64);
  const Value factors = expand(unsqueeze(base, 1), {x.shape()[0], columns});
  const Value powers = cumprod(where(eq(iota(0, 1, columns), 0), ones({}, base.dtype()), factors), 1);
  return increasing ? powers : flip(powers, {1});
}

Form view_form(const char* doc, Overload made) {
  return {.doc = doc, .overloads = {std::move(made)}, .sharing = Sharing::kView};
}

Form copy_form(const char* doc, Overload made, bool out = false) {
  return {.doc = doc, .overloads = {std::move(made)}, .out = out};
}

}  // namespace

std::vector<Form> diagonal_forms() {
  std::vector<Form> forms = {
      view_form("A diagonal of the matrices in two dims, as the last dim: a view. torch.diagonal.",
                overload("diagonal(Tensor input, int offset=0, int dim1=0, int dim2=1) -> Tensor", &diagonal)),
      copy_form("Matrices with the last dim as a diagonal, zero elsewhere. torch.diag_embed.",
                overload("diag_embed(Tensor input, int offset=0, int dim1=-2, int dim2=-1) -> Tensor", &diag_embed)),
      copy_form("The diagonal of a matrix, or the matrix with a vector as its diagonal. torch.diag.",
                overload("diag(Tensor input, int diagonal=0) -> Tensor", &diag), true),
      copy_form("The matrix with the elements as its diagonal. torch.diagflat.",
                overload("diagflat(Tensor input, int offset=0) -> Tensor", &diagflat)),
      copy_form("Sum of a matrix's diagonal. torch.trace.", overload("trace(Tensor input) -> Tensor", &trace)),
      copy_form("input with a diagonal replaced by src. torch.diagonal_scatter.",
                overload("diagonal_scatter(Tensor input, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
                         &diagonal_scatter)),
      copy_form("input with entry `index` of a dim replaced by src. torch.select_scatter.",
                overload("select_scatter(Tensor input, Tensor src, int dim, int index) -> Tensor", &select_scatter)),
      copy_form("input with start:end:step of a dim replaced by src. torch.slice_scatter.",
                overload("slice_scatter(Tensor input, Tensor src, int dim=0, int? start=None, int? end=None, int "
                         "step=1) -> Tensor",
                         &slice_scatter),
                true),
      copy_form("Powers of a vector as columns, falling or increasing; N: how many. torch.vander.",
                overload("vander(Tensor x, int? N=None, bool increasing=False) -> Tensor", &vander)),
  };
  forms.back().method = false;
  forms.push_back({.doc = "A matrix with the tensors, of at most two dims, along its diagonal. torch.block_diag.",
                   .overloads = {overload("block_diag(Tensor... tensors) -> Tensor", &block_diag)},
                   .method = false});
  forms.push_back(
      view_form("Windows of `size` along a dim, `step` apart, as the last dim: a view. torch.Tensor.unfold.",
                overload("unfold(Tensor input, int dimension, int size, int step) -> Tensor", &sliding_windows)));
  forms.back().function = false;
  return forms;
}

}  // namespace sluice::ops
