// Shapes, indexing and creation: one line each, and Python's subscript.
#include "graph/ops/movement.h"

#include "both.h"
#include "graph/ops/creation.h"
#include "graph/ops/indexing.h"
#include "graph/ops/shaping.h"
#include "subscript.h"
#include "tensor/tensor.h"

namespace sluice::python {
namespace {

using OptionalDType = std::optional<DType>;

// Methods that take sizes one by one, and functions that take them as a sequence.
template <class F>
void sizes_both(const Both& both, const char* name, F f) {
  both.fn.def(name, f, Release(), nb::arg("input"), nb::arg("sizes"));
  both.tensor.def(name, [f, name](const Value& x, const nb::args& args) {
    const Ints sizes = ints_of(args, name);
    GilRelease release;
    return f(x, sizes);
  });
}

// As torch, view functions return another tensor even where nothing changes: its flags and hooks are its own.
Value other_than(const Value& x, const Value& y) { return y.ptr() == x.ptr() ? view_of_all(x) : y; }

template <class... Args>
auto another(Value (*f)(const Value&, Args...)) {
  return [f](const Value& x, Args... args) -> Value { return other_than(x, f(x, args...)); };
}

// torch's expand: -1 keeps a dim.
Value expand(const Value& x, const Ints& sizes) {
  Shape shape(sizes);
  const int added = shape.rank() - x.rank();
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] == -1 && i >= added && added >= 0) shape[i] = x.shape()[i - added];
  return other_than(x, ops::expand(x, shape));
}

Value view(const Value& x, const Ints& sizes) {
  const OpDef& reshape = builtin_ops().get("reshape");
  const bool present = true;
  infer_types(reshape, {&x.type(), 1}, {&present, 1}, {sizes});  // checks the sizes
  const TensorSpec& spec = Tensor(x).spec();
  SLUICE_CHECK_KIND(kRuntime, reshape.view(spec, {sizes}),
                    "view: size {} is not compatible with the input's: shape {}, strides {}; at least one dimension "
                    "spans two contiguous subspaces: use reshape",
                    attr_str(sizes), spec.shape.str(), spec.strides.str());
  return other_than(x, ops::reshape(x, sizes));
}

void bind_shapes(const Both& both) {
  sizes_both(both, "view", &view);
  sizes_both(both, "reshape", another(&ops::reshape));
  sizes_both(both, "permute", [](const Value& x, const Ints& s) { return ops::permute(x, s); });
  sizes_both(both, "expand", &expand);
  sizes_both(both, "flip", [](const Value& x, const Ints& s) { return ops::flip(x, s); });
  sizes_both(both, "tile", [](const Value& x, const Ints& s) { return ops::tile(x, s); });
  both("squeeze", another(&ops::squeeze), nb::arg("dim") = nb::none())("unsqueeze", &ops::unsqueeze, nb::arg("dim"));
  both("flatten", &ops::flatten, nb::arg("start_dim") = 0, nb::arg("end_dim") = -1);
  both("transpose", another(&ops::transpose), nb::arg("dim0"), nb::arg("dim1"));
  both("movedim", another(&ops::movedim), nb::arg("source"), nb::arg("destination"));
  both("narrow", &ops::narrow, nb::arg("dim"), nb::arg("start"), nb::arg("length"));
  both("select", &ops::select, nb::arg("dim"), nb::arg("index"));
  both("unbind", &ops::unbind, nb::arg("dim") = 0)("chunk", &ops::chunk, nb::arg("chunks"), nb::arg("dim") = 0);
  using SplitSize = std::vector<Value> (*)(const Value&, int64_t, int64_t);
  using SplitSizes = std::vector<Value> (*)(const Value&, const Ints&, int64_t);
  const auto sizes = nb::arg("split_size_or_sections");
  both("split", static_cast<SplitSize>(&ops::split), sizes, nb::arg("dim") = 0);
  both("split", static_cast<SplitSizes>(&ops::split), sizes, nb::arg("dim") = 0);
  both("roll", &ops::roll, nb::arg("shifts"), nb::arg("dims") = Ints{});
  both("tril", &ops::tril, nb::arg("diagonal") = 0)("triu", &ops::triu, nb::arg("diagonal") = 0);
  both(
      "_pad",
      [](const Value& x, const Ints& low, const Ints& high, double value) { return ops::pad(x, low, high, value); },
      nb::arg("low"), nb::arg("high"), nb::arg("value") = 0.0);
  both("_copy", &ops::copy);
}

void bind_indexing(const Both& both) {
  const auto dim = nb::arg("dim");
  both(
      "gather", [](const Value& x, int64_t d, const Value& i) { return ops::gather(x, i, d); }, dim, nb::arg("index"));
  both(
      "scatter",
      [](const Value& x, int64_t d, const Value& i, const ops::Operand& src) {
        return ops::scatter(x, i, src.is_number() ? ops::expand(src.to(x.dtype()), i.shape()) : src.value(), d);
      },
      dim, nb::arg("index"), nb::arg("src"));
  both(
      "scatter_add",
      [](const Value& x, int64_t d, const Value& i, const Value& src) { return ops::scatter_add(x, i, src, d); }, dim,
      nb::arg("index"), nb::arg("src"));
  both(
      "index_select", [](const Value& x, int64_t d, const Value& i) { return ops::index_select(x, i, d); }, dim,
      nb::arg("index"));
  both(
      "index_add",
      [](const Value& x, int64_t d, const Value& i, const Value& src) { return ops::index_add(x, i, src, d); }, dim,
      nb::arg("index"), nb::arg("source"));
  both(
      "take_along_dim", [](const Value& x, const Value& i, int64_t d) { return ops::take_along(x, i, d); },
      nb::arg("indices"), dim);
}

void bind_creation(nb::module_& fn) {
  fn.def("full", &ops::full, Release(), nb::arg("size"), nb::arg("value"), nb::arg("dtype"));
  fn.def(
      "number",
      [](const ops::Operand& value, DType dtype) {
        SLUICE_CHECK_KIND(kType, value.is_number(), "number: got a tensor; must be a number");
        value.check_fits(dtype, "full");
        return value.to(dtype);
      },
      Release(), nb::arg("value"), nb::arg("dtype"), "A number as a tensor without axes; integers are exact.");
  fn.def("arange", &ops::arange, Release(), nb::arg("start"), nb::arg("end"), nb::arg("step"), nb::arg("dtype"));
  fn.def("linspace", &ops::linspace, Release(), nb::arg("start"), nb::arg("end"), nb::arg("steps"), nb::arg("dtype"));
  fn.def("eye", &ops::eye, Release(), nb::arg("n"), nb::arg("m"), nb::arg("dtype"));
  fn.def(
      "empty",
      [](const Shape& s, DType d) -> Value {
        return Tensor::empty({d, s});
      },
      Release(), nb::arg("size"), nb::arg("dtype"));
  fn.def("one_hot", &ops::one_hot, Release(), nb::arg("input"), nb::arg("num_classes"));
  fn.def(
      "cat", [](const std::vector<Value>& xs, int64_t dim) { return ops::concat(xs, dim); }, Release(),
      nb::arg("tensors"), nb::arg("dim") = 0);
  fn.def(
      "stack", [](const std::vector<Value>& xs, int64_t dim) { return ops::stack(xs, dim); }, Release(),
      nb::arg("tensors"), nb::arg("dim") = 0);
}

}  // namespace

void bind_movement(nb::module_& fn, nb::class_<Tensor>& tensor) {
  const Both both{fn, tensor};
  bind_shapes(both);
  bind_indexing(both);
  bind_creation(fn);
  tensor.def("__getitem__", &get_item, nb::arg("index").none());
  tensor.def("__setitem__", &set_item, nb::arg("index").none(), nb::arg("value"));
}

}  // namespace sluice::python
