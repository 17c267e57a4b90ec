#include "tensor/forms/forms.h"

#include <algorithm>
#include <numeric>

#include "graph/executor.h"
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/extent.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/ops/strided_view.h"
#include "graph/tape.h"
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

Value view_as_dtype(const Value& x, DType dtype) {
  const OpDef& op = builtin_ops().get("view_as_dtype");
  const bool present = true;
  infer_types(op, {&x.type(), 1}, {&present, 1}, {dtype});  // checks the sizes
  const TensorSpec& spec = Tensor(x).spec();
  const int64_t ratio = static_cast<int64_t>(dtype_size(dtype) / dtype_size(x.dtype()));
  const char *from = dtype_name(x.dtype()), *to = dtype_name(dtype);
  for (int i = x.rank() - 1; i >= 0 && dtype_size(dtype) != dtype_size(x.dtype()); --i) {
    const bool last = i == x.rank() - 1;
    SLUICE_CHECK_KIND(kRuntime, !last || spec.strides[i] == 1,
                      "view: self.stride(-1) must be 1 to view {} as {} (different element sizes), but got {}", from,
                      to, spec.strides[i]);
    SLUICE_CHECK_KIND(
        kRuntime, last || ratio == 0 || spec.strides[i] % ratio == 0,
        "view: self.stride({}) must be divisible by {} to view {} as {} (different element sizes), but got {}", i,
        ratio, from, to, spec.strides[i]);
  }
  const GradMode no_grad(false);  // as torch: bits have no gradient
  return ops::view_as_dtype(x, dtype);
}

Value view_as(const Value& x, const Value& other) { return view(x, other.shape().vec()); }

// The same values with the strides that a memory format has.
Value in_format(const char* name, const Value& x, const std::string& format) {
  if (format == "contiguous_format") return Tensor(x).contiguous();
  const bool spatial = format == "channels_last", volume = format == "channels_last_3d";
  SLUICE_CHECK_KIND(kRuntime, format != "preserve_format",
                    "{}: preserve memory format is unsupported by the contiguous operator", name);
  SLUICE_CHECK(spatial || volume,
               "{}: memory_format is '{}'; must be contiguous_format, channels_last or channels_last_3d", name, format);
  SLUICE_CHECK_KIND(kRuntime, x.rank() == (spatial ? 4 : 5),
                    "{}: required rank {} tensor to use {} format: got {} dims", name, spatial ? 4 : 5, format,
                    x.rank());
  if (Tensor(x).strides() == channels_last_strides(x.shape())) return x;
  return ops::movedim(Tensor(ops::movedim(x, 1, -1)).contiguous(), -1, 1);
}

Value clone(const Value& x, const std::optional<std::string>& format) {
  if (!format || *format == "preserve_format") return Tensor(x).clone();
  const Value y = in_format("clone", x, *format);
  return y.ptr() == x.ptr() ? Value(Tensor(x).clone()) : y;
}

// The same memory with its dims in the order in which they lie in it, outermost first.
Value in_memory_order(const Value& x) {
  const auto strides = Tensor(x).strides();
  Ints order(x.rank());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  return ops::permute(x, order);
}

// `seen`, which shows some of x's memory, as a function of x: elements of x get the gradients of where they are seen.
Value seen_of(const Value& x, const Value& seen) {
  struct Place {
    Shape shape;
    Strides strides;
    int64_t offset;
    explicit Place(const Value& v)
        : shape(v.shape()), strides(Tensor(v).strides()), offset(static_cast<const EagerImpl&>(*v.impl()).offset()) {}
    int64_t end() const {
      int64_t last = offset;
      for (int i = 0; i < shape.rank(); ++i) last += (shape[i] - 1) * strides[i];
      return numel(shape) == 0 ? 0 : last + 1;
    }
    Value among(int64_t all) const {  // flat
      return ops::flatten(ops::as_strided(ops::iota(0, 1, all), shape.vec(), strides.vec(), offset));
    }
  };
  Value result = seen;
  record_function("as_strided", {&x, 1}, {&result, 1}, [own = Place(x), shown = Place(seen)](auto grads) {
    const int64_t all = std::max(own.end(), shown.end());
    const Value none = ops::zeros({all}, grads[0].dtype());
    const Value memory = ops::index_add(none, shown.among(all), ops::flatten(grads[0]), 0), place = own.among(all);
    // As torch, elements of x that lie in one place share its gradient.
    const Value uses = ops::index_add(none, place, ops::ones(place.shape(), none.dtype()), 0);
    const Value shares = ops::div(memory, ops::clamp(uses, Operand(1), std::nullopt));
    return std::vector{ops::reshape(ops::index_select(shares, place, 0), own.shape.vec())};
  });
  return result;
}

// The offsets of a view are those in the memory of its base. Gradients may be asked for of the view alone.
Value as_strided(const Value& x, const Ints& size, const Ints& stride, const std::optional<int64_t>& storage_offset) {
  const auto& impl = static_cast<const TensorImpl&>(*x.impl());
  const auto* eager = dynamic_cast<const EagerImpl*>(x.impl());
  const int64_t own = eager != nullptr ? eager->offset() : 0, offset = storage_offset.value_or(own);
  const bool own_leaf = impl.base() != nullptr && x.requires_grad() && !Value(impl.base()).requires_grad();
  if (own_leaf && eager != nullptr) return seen_of(x, as_strided(Value(impl.base()), size, stride, offset));
  if (impl.base() != nullptr && !own_leaf && (storage_offset || (eager != nullptr && !Tensor(x).is_contiguous())))
    return as_strided(Value(impl.base()), size, stride, offset);
  const bool contiguous = Tensor(x).is_contiguous();
  if (!contiguous) {
    const Value dense = in_memory_order(x);
    if (Tensor(dense).is_contiguous()) return ops::as_strided(dense, size, stride, offset - own);
  }
  ops::Wide last = ops::Wide{offset} - own;
  for (size_t i = 0; i < std::min(size.size(), stride.size()); ++i) last += (ops::Wide{size[i]} - 1) * stride[i];
  if (eager != nullptr &&
      (!contiguous || offset < own || last >= numel(x.shape()))) {  // more of the memory than x shows
    const auto all = static_cast<int64_t>(eager->storage()->bytes() / dtype_size(x.dtype()));
    const TensorSpec line = TensorSpec::contiguous({x.dtype(), {all}});
    const Value memory(std::make_shared<EagerImpl>(eager->storage(), line, eager->device(), eager->version_counter()));
    return seen_of(x, ops::as_strided(memory, size, stride, offset));
  }
  SLUICE_CHECK_KIND(kUnsupported, contiguous,
                    "as_strided: the input is not contiguous: shape {}, strides {}; it must be: use contiguous()",
                    x.shape().str(), Tensor(x).strides().str());
  return ops::as_strided(x, size, stride, offset - own);
}

bool truth(const Value& x) { return std::get<bool>(Tensor(x).detach().item()); }

bool equal(const Value& a, const Value& b) { return a.shape() == b.shape() && truth(ops::all(ops::eq(a, b))); }

bool allclose(const Value& a, const Value& b, double rtol, double atol, bool equal_nan) {
  return truth(ops::all(ops::isclose(a, b, rtol, atol, equal_nan)));
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
                   .overloads = {overload("clone(Tensor input, *, str? memory_format=None) -> Tensor", &clone)}});
  forms.push_back({.doc = "The same memory without history. torch.detach.",
                   .overloads = {overload("detach(Tensor input) -> Tensor",
                                          [](const Value& x) -> Value { return Tensor(x).detach(); })},
                   .sharing = Sharing::kView});
  forms.push_back({.doc = "The same values, contiguous; itself where it is. torch.Tensor.contiguous.",
                   .overloads = {overload(
                       "contiguous(Tensor input, *, str memory_format=\"contiguous_format\") -> Tensor",
                       [](const Value& x, const std::string& format) { return in_format("contiguous", x, format); })},
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
  forms.push_back(
      {.doc = "A view of its memory with these sizes and strides, from an offset on. torch.as_strided.",
       .overloads = {overload("as_strided(Tensor input, int[] size, int[] stride, int? storage_offset=None) "
                              "-> Tensor",
                              &as_strided)},
       .in_place = true,
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
  forms.push_back({.doc = "Whether the dtype is complex. torch.is_complex.",
                   .overloads = {overload("is_complex(Tensor input) -> bool",
                                          [](const Value& x) { return is_complex(x.dtype()); })}});
}

// x.float() and its like: itself where it is of that dtype.
void add_casts(std::vector<Form>& forms) {
  static const std::pair<const char*, DType> kCasts[] = {
      {"float", DType::kFloat32},     {"double", DType::kFloat64},   {"half", DType::kFloat16},
      {"bfloat16", DType::kBFloat16}, {"long", DType::kInt64},       {"int", DType::kInt32},
      {"short", DType::kInt16},       {"char", DType::kInt8},        {"byte", DType::kUInt8},
      {"bool", DType::kBool},         {"cfloat", DType::kComplex64}, {"cdouble", DType::kComplex128}};
  for (const auto& [name, dtype] : kCasts)
    forms.push_back(
        {.doc = "The values as the dtype of that name; itself where it is of it. torch.Tensor.to.",
         .overloads = {overload(std::string(name) + "(Tensor input, *, str? memory_format=None) -> Tensor",
                                [name = name, dtype = dtype](const Value& x, const std::optional<std::string>& format) {
                                  const Value y = ops::cast(x, dtype);
                                  return format && *format != "preserve_format" ? in_format(name, y, *format) : y;
                                })},
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
    add_data_dependent_forms(all);
    return all;
  }();
  return forms;
}

}  // namespace sluice
