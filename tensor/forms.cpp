#include "tensor/forms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/autodiff/tape.h"
#include "graph/executor.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "tensor/tensor.h"

namespace sluice {
namespace {

using ops::Operand;

Value view(const Value& x, const Ints& size) {
  const OpDef& reshape = builtin_ops().get("reshape");
  const bool present = true;
  infer_types(reshape, {&x.type(), 1}, {&present, 1}, {size});  // checks the sizes
  const TensorSpec& spec = Tensor(x).spec();
  SLUICE_CHECK_KIND(kRuntime, reshape.view(spec, {size}),
                    "view: size {} is not compatible with the input's: shape {}, strides {}; at least one dimension "
                    "spans two contiguous subspaces: use reshape",
                    attr_str(size), spec.shape.str(), spec.strides.str());
  return ops::reshape(x, size);
}

Value view_as_dtype(const Value&, DType) {
  fail(ErrorKind::kUnsupported,
       "view: reinterpreting as another dtype is not supported; to(dtype) converts the values");
}

Value view_as(const Value& x, const Value& other) { return view(x, other.shape().vec()); }

bool truth(const Value& x) { return std::get<bool>(Tensor(x).detach().item()); }

bool equal(const Value& a, const Value& b) { return a.shape() == b.shape() && truth(ops::all(ops::eq(a, b))); }

bool allclose(const Value& a, const Value& b, double rtol, double atol, bool equal_nan) {
  return truth(ops::all(ops::isclose(a, b, rtol, atol, equal_nan)));
}

// The contents as contiguous elements of T on the host.
template <class T>
std::vector<T> host_values(const Value& x, DType dtype) {
  const GradMode no_grad(false);
  const Tensor t = Tensor(x).detach().to(dtype);
  std::vector<T> values(static_cast<size_t>(t.size()));
  t.copy_to_host(values.data());
  return values;
}

// The multi-indices of elements that are not zero, one row each.
Value nonzero_rows(const Value& x) {
  SLUICE_CHECK_KIND(kRuntime, !x.impl()->traced(),
                    "nonzero: the tensor is traced; its result has no shape while a graph is built: use it outside");
  const std::vector<uint8_t> chosen = host_values<uint8_t>(ops::cast(x, DType::kBool), DType::kUInt8);
  const int rank = x.rank();
  Ints rows;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i]) continue;
    int64_t left = static_cast<int64_t>(i);
    rows.resize(rows.size() + rank);
    for (int d = 1; d <= rank; ++d) {
      const int64_t size = x.shape()[rank - d];
      rows[rows.size() - d] = left % size;
      left /= size;
    }
  }
  const int64_t count = std::count_if(chosen.begin(), chosen.end(), [](uint8_t c) { return c != 0; });
  return Tensor::from_host({DType::kInt64, {count, rank}}, rows.data());
}

// As torch: of a tensor without dims as of one element.
std::vector<Value> nonzero_columns(const Value& x) {
  return ops::unbind(nonzero_rows(x.rank() == 0 ? ops::reshape(x, {1}) : x), 1);
}

FormResult nonzero(const Value& x, bool as_tuple) {
  if (as_tuple) return nonzero_columns(x);
  return nonzero_rows(x);
}

Value where(const Value& condition, const Operand& a, const Operand& b) {
  return ops::where(condition.dtype() == DType::kUInt8 ? ops::cast(condition, DType::kBool) : condition, a, b);
}

Value masked_select(const Value& x, const Value& mask) {
  SLUICE_CHECK_KIND(kRuntime, mask.dtype() == DType::kBool, "masked_select: expected BoolTensor for mask: got {}",
                    dtype_name(mask.dtype()));
  const Shape shape = broadcast_shapes(x.shape(), mask.shape(), "masked_select");
  const Value chosen = nonzero_columns(ops::flatten(ops::expand(mask, shape)))[0];
  return ops::index_select(ops::flatten(ops::expand(x, shape)), chosen, 0);
}

bool before(double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); }  // NaN is the largest
bool before(int64_t a, int64_t b) { return a < b; }

template <class T>
void sort_rows(const std::vector<T>& values, int64_t length, bool descending, Ints* order) {
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(length)) {
    const auto first = order->begin() + static_cast<std::ptrdiff_t>(row);
    std::iota(first, first + length, int64_t{0});
    std::stable_sort(first, first + length, [&, v = values.data() + row](int64_t a, int64_t b) {
      return descending ? before(v[b], v[a]) : before(v[a], v[b]);
    });
  }
}

// The stable order along `dim`, int64, of x's shape.
Value order_of(const char* name, const Value& x, int64_t dim, bool descending) {
  SLUICE_CHECK_KIND(kRuntime, !x.impl()->traced(),
                    "{}: the tensor is traced; sorting inside a graph is not supported: sort its results", name);
  const int axis = normalize_axis(dim, x.rank(), name);
  const GradMode no_grad(false);
  const Value rows = x.rank() < 2 ? ops::flatten(x) : ops::transpose(x, axis, -1);
  Ints order(static_cast<size_t>(numel(x.shape())));
  if (!order.empty() && is_floating(x.dtype()))
    sort_rows(host_values<double>(rows, DType::kFloat64), rows.shape().back(), descending, &order);
  else if (!order.empty())
    sort_rows(host_values<int64_t>(rows, DType::kInt64), rows.shape().back(), descending, &order);
  const Value sorted = Tensor::from_host({DType::kInt64, rows.shape()}, order.data());
  if (x.rank() == 0) return ops::reshape(sorted, {});
  return x.rank() == 1 ? sorted : Tensor(ops::transpose(sorted, axis, -1)).contiguous();
}

std::pair<Value, Value> sort(const Value& x, int64_t dim, bool descending) {
  const Value order = order_of("sort", x, dim, descending);
  return {ops::gather(x, order, dim), order};
}

Value argsort(const Value& x, int64_t dim, bool descending) { return order_of("argsort", x, dim, descending); }

std::pair<Value, Value> topk(const Value& x, int64_t k, int64_t dim, bool largest, bool) {
  const int64_t size = x.rank() == 0 ? 1 : x.shape()[normalize_axis(dim, x.rank(), "topk")];
  SLUICE_CHECK_KIND(kRuntime, k >= 0 && k <= size,
                    "topk: selected index k out of range: k is {}; must be between 0 and {}", k, size);
  const Value order = order_of("topk", x, dim, largest);
  const Value chosen = x.rank() == 0 ? order : Value(Tensor(ops::narrow(order, dim, 0, k)).contiguous());
  return {ops::gather(x, chosen, dim), chosen};
}

Value one_hot(const Value& index, int64_t num_classes) {
  SLUICE_CHECK_KIND(kRuntime, index.dtype() == DType::kInt64,
                    "one_hot: is only applicable to index tensor of type LongTensor: got {}; cast it to int64",
                    dtype_name(index.dtype()));
  SLUICE_CHECK_KIND(kRuntime, numel(index.shape()) > 0 || num_classes > 0,
                    "one_hot: Can not infer total number of classes from empty tensor: num_classes is {}; give it",
                    num_classes);
  const auto number = [](const Value& x) { return std::get<int64_t>(Tensor(x).item()); };
  if (num_classes == -1) num_classes = number(ops::amax(index)) + 1;
  if (!index.impl()->traced() && numel(index.shape()) > 0) {
    const int64_t least = number(ops::amin(index)), most = number(ops::amax(index));
    SLUICE_CHECK_KIND(kRuntime, least >= 0, "one_hot: Class values must be non-negative: got {}", least);
    SLUICE_CHECK_KIND(kRuntime, most < num_classes,
                      "one_hot: Class values must be smaller than num_classes: got {} for {} classes", most,
                      num_classes);
  }
  return ops::one_hot(index, num_classes);
}

void add_memory_forms(std::vector<Form>& forms) {
  forms.push_back({.doc = "A copy in memory of its own; differentiable. torch.clone.",
                   .overloads = {overload("clone(Tensor input) -> Tensor",
                                          [](const Value& x) -> Value { return Tensor(x).clone(); })}});
  forms.push_back({.doc = "The same memory without history. torch.detach.",
                   .overloads = {overload("detach(Tensor input) -> Tensor",
                                          [](const Value& x) -> Value { return Tensor(x).detach(); })},
                   .sharing = Sharing::kView});
  forms.push_back({.doc = "The same values, contiguous; itself where it is. torch.Tensor.contiguous.",
                   .overloads = {overload("contiguous(Tensor input) -> Tensor",
                                          [](const Value& x) -> Value { return Tensor(x).contiguous(); })},
                   .function = false,
                   .sharing = Sharing::kItself});
  forms.push_back({.doc = "The same memory in another shape, of which one dim may be -1. torch.Tensor.view.",
                   .overloads = {overload("view(Tensor input, int[] size) -> Tensor", &view),
                                 overload("view(Tensor input, ScalarType dtype) -> Tensor", &view_as_dtype)},
                   .function = false,
                   .sharing = Sharing::kView});
  forms.push_back({.doc = "The same memory in other's shape. torch.Tensor.view_as.",
                   .overloads = {overload("view_as(Tensor input, Tensor other) -> Tensor", &view_as)},
                   .function = false,
                   .sharing = Sharing::kView});
  const auto count = [](const Value& x) { return numel(x.shape()); };
  forms.push_back(
      {.doc = "The number of elements. torch.numel.", .overloads = {overload("numel(Tensor input) -> int", count)}});
  forms.push_back({.doc = "The number of elements. torch.Tensor.nelement.",
                   .overloads = {overload("nelement(Tensor input) -> int", count)},
                   .function = false});
  forms.push_back({.doc = "Whether the dtype is floating-point. torch.is_floating_point.",
                   .overloads = {overload("is_floating_point(Tensor input) -> bool",
                                          [](const Value& x) { return is_floating(x.dtype()); })}});
}

// x.float() and its like: itself where it is of that dtype.
void add_casts(std::vector<Form>& forms) {
  static const std::pair<const char*, DType> kCasts[] = {{"float", DType::kFloat32}, {"double", DType::kFloat64},
                                                         {"half", DType::kFloat16},  {"bfloat16", DType::kBFloat16},
                                                         {"long", DType::kInt64},    {"int", DType::kInt32},
                                                         {"short", DType::kInt16},   {"char", DType::kInt8},
                                                         {"byte", DType::kUInt8},    {"bool", DType::kBool}};
  for (const auto& [name, dtype] : kCasts)
    forms.push_back({.doc = "The values as the dtype of that name; itself where it is of it. torch.Tensor.to.",
                     .overloads = {overload(std::string(name) + "(Tensor input) -> Tensor",
                                            [dtype = dtype](const Value& x) { return ops::cast(x, dtype); })},
                     .function = false,
                     .sharing = Sharing::kItself});
}

void add_data_forms(std::vector<Form>& forms) {
  forms.push_back({.doc = "The same shape and equal elements. torch.equal.",
                   .overloads = {overload("equal(Tensor input, Tensor other) -> bool", &equal)}});
  forms.push_back(
      {.doc = "All elements are close, as isclose() says. torch.allclose.",
       .overloads = {overload("allclose(Tensor input, Tensor other, float rtol=1e-05, float atol=1e-08, bool "
                              "equal_nan=False) -> bool",
                              &allclose)}});
  forms.push_back(
      {.doc = "input where condition, else other; of the condition alone, the indices where it holds. torch.where.",
       .overloads = {overload("where(Tensor condition, Operand input, Operand other) -> Tensor", &where),
                     overload("where(Tensor condition) -> Tensor[]", &nonzero_columns)},
       .method = false});
  forms.push_back({.doc = "Indices of the elements that are not zero, a row each or, as_tuple, a tensor per dim. "
                          "torch.nonzero.",
                   .overloads = {overload("nonzero(Tensor input, *, bool as_tuple=False) -> Tensor", &nonzero)}});
  forms.push_back({.doc = "The elements where mask holds, both broadcast, as a vector. torch.masked_select.",
                   .overloads = {overload("masked_select(Tensor input, Tensor mask) -> Tensor", &masked_select)}});
  const auto sort_stably = [](const Value& x, const std::optional<bool>&, int64_t dim, bool descending) {
    return sort(x, dim, descending);
  };
  forms.push_back(
      {.doc = "Sorted along a dim, and where the elements were; stable, NaN is the largest. torch.sort.",
       .overloads = {
           overload("sort(Tensor input, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)", &sort),
           overload("sort(Tensor input, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, "
                    "Tensor indices)",
                    sort_stably)}});
  const auto argsort_stably = [](const Value& x, bool, int64_t dim, bool descending) {
    return argsort(x, dim, descending);
  };
  forms.push_back(
      {.doc = "Where the elements of a sorted dim were; stable. torch.argsort.",
       .overloads = {overload("argsort(Tensor input, int dim=-1, bool descending=False) -> Tensor", &argsort),
                     overload("argsort(Tensor input, *, bool stable, int dim=-1, bool descending=False) -> Tensor",
                              argsort_stably)}});
  forms.push_back(
      {.doc = "The k largest (or smallest) along a dim, sorted, and where they were. torch.topk.",
       .overloads = {overload("topk(Tensor input, int k, int dim=-1, bool largest=True, bool sorted=True) -> "
                              "(Tensor values, Tensor indices)",
                              &topk)}});
  forms.push_back(
      {.doc = "index.shape + (num_classes,), int64; -1: as many as there are. F.one_hot.",
       .overloads = {overload("nn.functional.one_hot(Tensor input, int num_classes=-1) -> Tensor", &one_hot)}});
}

}  // namespace

const std::vector<Form>& tensor_forms() {
  static const std::vector<Form> forms = [] {
    std::vector<Form> all;
    add_memory_forms(all);
    add_casts(all);
    add_data_forms(all);
    for (Form& form : network_tensor_forms()) all.push_back(std::move(form));
    return all;
  }();
  return forms;
}

}  // namespace sluice
