// The class Tensor: data, memory and autograd. Mathematics is added by math.cpp and movement.cpp.
#include "tensor/tensor.h"

#include <nanobind/ndarray.h>

#include <chrono>

#include "bindings.h"
#include "both.h"
#include "graph/autodiff/tape.h"
#include "graph/ops/creation.h"
#include "graph/ops/movement.h"
#include "tensor/eager.h"
#include "tensor/trace.h"

namespace sluice::python {
namespace {

using Array = nb::ndarray<nb::ro>;

DType dtype_of(const nb::dlpack::dtype& t) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(t.code);
  if (t.lanes == 1) {
    if (code == Code::Bool && t.bits == 8) return DType::kBool;
    if (code == Code::UInt && t.bits == 8) return DType::kUInt8;
    if (code == Code::Int) {
      if (t.bits == 8) return DType::kInt8;
      if (t.bits == 16) return DType::kInt16;
      if (t.bits == 32) return DType::kInt32;
      if (t.bits == 64) return DType::kInt64;
    }
    if (code == Code::Float) {
      if (t.bits == 16) return DType::kFloat16;
      if (t.bits == 32) return DType::kFloat32;
      if (t.bits == 64) return DType::kFloat64;
    }
    if (code == Code::Bfloat && t.bits == 16) return DType::kBFloat16;
  }
  fail(ErrorKind::kType,
       "from_numpy: an array of dtype code {} with {} bits; supported are bool, uint8, int8, int16, int32, "
       "int64, float16, bfloat16, float32, float64 (complex is not supported)",
       int(t.code), int(t.bits));
}

nb::dlpack::dtype dlpack_of(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  Code code = Code::Int;
  if (dtype == DType::kBool) code = Code::Bool;
  if (dtype == DType::kUInt8) code = Code::UInt;
  if (dtype == DType::kBFloat16)
    code = Code::Bfloat;
  else if (is_floating(dtype))
    code = Code::Float;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(dtype_size(dtype) * 8), 1};
}

// Shares the array's memory, and keeps the array alive.
Tensor from_array(nb::object source) {
  Array array;
  if (!nb::try_cast(source, array)) {
    nb::object dtype = nb::getattr(source, "dtype", nb::none());
    fail(ErrorKind::kType, "from_numpy: got {} of dtype {}; must be an array of bool, integers or floats on the CPU",
         Py_TYPE(source.ptr())->tp_name, nb::cast<std::string>(nb::str(dtype)));
  }
  TensorSpec spec;
  spec.dtype = dtype_of(array.dtype());
  for (size_t i = 0; i < array.ndim(); ++i) {
    spec.shape.push_back(static_cast<int64_t>(array.shape(i)));
    spec.strides.push_back(array.stride(i));
    if (array.stride(i) < 0)
      fail(ErrorKind::kValue, "from_numpy: stride {} of dim {} is negative; copy the array first", array.stride(i), i);
  }
  auto keep = std::make_shared<SharedObject>(std::move(source));
  return Tensor::borrow(spec, const_cast<void*>(array.data()), [keep] {});
}

void wait_ready(const Tensor& t) {
  if (!t.ready()) wait_tensors({t});
}

template <class Framework>
nb::object to_array(const Tensor& t, const char* what) {
  wait_ready(t);
  const void* data;
  {
    nb::gil_scoped_release release;
    data = t.read(what);
  }
  size_t shape[kMaxRank];
  int64_t strides[kMaxRank];
  for (int i = 0; i < t.rank(); ++i) {
    shape[i] = static_cast<size_t>(t.shape()[i]);
    strides[i] = t.strides()[i];
  }
  nb::object owner = nb::cast(Tensor(t.detach()));
  using Result = nb::ndarray<Framework>;
  return nb::cast(Result(const_cast<void*>(data), t.rank(), shape, owner, strides, dlpack_of(t.dtype())),
                  nb::rv_policy::reference);
}

nb::object numpy(const Tensor& t) {
  if (t.requires_grad() && grad_enabled())
    fail(ErrorKind::kRuntime, "numpy: the tensor requires grad; use tensor.detach().numpy()");
  if (t.dtype() == DType::kBFloat16)
    fail(ErrorKind::kType, "numpy: bfloat16 has no numpy dtype; use tensor.float().numpy()");
  if (!t.traced() && t.device() != DeviceId{})
    fail(ErrorKind::kType, "numpy: the tensor is on {}; use tensor.cpu().numpy()", t.device().str());
  return to_array<nb::numpy>(t, "numpy");
}

nb::object item(const Tensor& t) {
  if (t.traced())
    fail(ErrorKind::kRuntime,
         "item: the tensor is traced and has no value while a graph is built; return it from build() instead");
  wait_ready(t);
  Attr value;
  {
    nb::gil_scoped_release release;
    value = t.item();
  }
  if (const bool* b = std::get_if<bool>(&value)) return nb::cast(*b);
  if (const int64_t* i = std::get_if<int64_t>(&value)) return nb::cast(*i);
  return nb::cast(std::get<double>(value));
}

// Nested lists of numbers, from the innermost dim outwards.
nb::object to_list(const Tensor& t, const char* bytes, int dim) {
  if (dim == t.rank()) {
    switch (t.dtype()) {
      case DType::kBool: return nb::cast(*reinterpret_cast<const bool*>(bytes));
      case DType::kInt64: return nb::cast(*reinterpret_cast<const int64_t*>(bytes));
      default: return nb::cast(*reinterpret_cast<const double*>(bytes));
    }
  }
  nb::list list;
  const int64_t step = t.strides()[dim] * static_cast<int64_t>(dtype_size(t.dtype()));
  for (int64_t i = 0; i < t.shape()[dim]; ++i) list.append(to_list(t, bytes + i * step, dim + 1));
  return list;
}

nb::object tolist(const Tensor& t) {
  wait_ready(t);
  Tensor wide;
  const char* bytes;
  {
    nb::gil_scoped_release release;
    GradMode no_grad(false);
    wide = t.detach().to(DeviceId{});
    wide = t.dtype() == DType::kBool ? wide : wide.to(is_floating(t.dtype()) ? DType::kFloat64 : DType::kInt64);
    bytes = static_cast<const char*>(wide.read("tolist"));
  }
  return to_list(wide, bytes, 0);
}

// `p.data = x`: the object keeps its identity, flags and gradient, and gets other memory.
void set_data(Tensor& self, const Value& data) {
  Tensor replaced = Tensor(data).detach();
  const Tensor grad = self.grad();
  if (self.requires_grad()) replaced.set_requires_grad(true);
  if (grad.defined()) replaced.set_grad(grad);
  self = replaced;
}

Value run_hook(const SharedObject& hook, const Value& grad) {
  nb::gil_scoped_acquire gil;
  nb::object result = hook.get()(grad);
  return result.is_none() ? Value() : nb::cast<Value>(result);
}

struct PyGradNode {
  std::shared_ptr<GradNode> node;
};

void bind_autograd_members(nb::class_<Tensor>& t) {
  t.def_prop_rw(
       "requires_grad", [](const Tensor& t) { return t.requires_grad(); },
       [](const Tensor& t, bool on) { t.set_requires_grad(on); })
      .def(
          "requires_grad_",
          [](nb::handle self, bool on) {
            nb::inst_ptr<Tensor>(self)->set_requires_grad(on);
            return nb::borrow(self);
          },
          nb::arg("requires_grad") = true)
      .def_prop_ro("is_leaf", &Tensor::is_leaf)
      .def_prop_rw(
          "grad", [](const Tensor& t) -> Value { return t.grad(); },
          [](const Tensor& t, const OptionalValue& g) { t.set_grad(g.value); }, nb::for_setter(nb::arg("grad").none()))
      .def_prop_ro("grad_fn",
                   [](const Tensor& t) -> nb::object {
                     if (!t.impl()->autograd || !t.impl()->autograd->grad_fn) return nb::none();
                     return nb::cast(PyGradNode{t.impl()->autograd->grad_fn});
                   })
      .def("retain_grad", &Tensor::retain_grad)
      .def("_add_hook",
           [](const Tensor& t, nb::callable hook) {
             return t.add_hook([hook = SharedObject(hook)](const Value& grad) { return run_hook(hook, grad); });
           })
      .def("_remove_hook", &Tensor::remove_hook)
      .def(
          "detach", [](const Tensor& t) -> Value { return t.detach(); }, Release())
      .def(
          "clone", [](const Tensor& t) -> Value { return t.clone(); }, Release())
      .def_prop_rw(
          "data", [](const Tensor& t) -> Value { return t.detach(); }, &set_data);
}

}  // namespace

void wait_tensors(const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors)
    wait_interruptibly([&](int timeout_ms) { return t.wait_for(std::chrono::milliseconds(timeout_ms)); });
}

nb::class_<Tensor> bind_tensor(nb::module_& m) {
  nb::class_<PyGradNode>(m, "GradNode")
      .def("name", [](const PyGradNode& n) { return n.node->name(); })
      .def_prop_ro(
          "next_functions",
          [](const PyGradNode& n) {
            nb::list list;
            for (const GradNode::Next& next : n.node->next)
              list.append(nb::make_tuple(next.node ? nb::cast(PyGradNode{next.node}) : nb::none(), next.index));
            return nb::tuple(list);
          })
      .def("__repr__", [](const PyGradNode& n) { return "<" + std::string(n.node->name()) + ">"; });
  nb::class_<Tensor> t(m, "Tensor", nb::dynamic_attr(), nb::is_weak_referenceable(),
                       "A multi-dimensional array; see torch.Tensor.");
  t.def("__init__", [](Tensor* self, const Value& other) { new (self) Tensor(other); })
      .def_prop_ro("_shape", [](const Tensor& t) { return t.shape(); })
      .def_prop_ro("dtype", [](const Tensor& t) { return t.dtype(); })
      .def_prop_ro("_device", [](const Tensor& t) { return t.device().str(); })
      .def_prop_ro("ndim", [](const Tensor& t) { return t.rank(); })
      .def("dim", [](const Tensor& t) { return t.rank(); })
      .def("numel", &Tensor::size)
      .def("_strides", [](const Tensor& t) { return t.strides(); })
      .def("storage_offset",
           [](const Tensor& t) -> int64_t {
             const auto* eager = dynamic_cast<const EagerImpl*>(t.impl());
             return eager ? eager->offset() : 0;
           })
      .def("is_contiguous", &Tensor::is_contiguous)
      .def("_is_view", &Tensor::is_view)
      .def_prop_ro("_traced", &Tensor::traced)
      .def_prop_ro("_version", [](const Tensor& t) { return t.impl()->version(); })
      .def_prop_ro("_impl", [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.impl()); })
      .def("__hash__", [](nb::handle self) { return reinterpret_cast<uintptr_t>(self.ptr()) >> 4; })
      .def(
          "data_ptr",
          [](const Tensor& t) {
            if (t.traced()) fail(ErrorKind::kRuntime, "data_ptr: a traced tensor has no memory of its own");
            return reinterpret_cast<uintptr_t>(static_cast<EagerImpl*>(t.impl())->data());
          },
          Release())
      .def("is_ready", &Tensor::ready, "True when reading would not wait for a graph's step.")
      .def("numpy", &numpy)
      .def("item", &item)
      .def("tolist", &tolist)
      .def("__dlpack__",
           [](const Tensor& t, nb::args, nb::kwargs) { return to_array<nb::no_framework>(t, "__dlpack__"); })
      .def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(1, 0); })
      .def(
          "_to_device", [](const Tensor& t, const DeviceId& d) -> Value { return t.to(d); }, Release())
      .def(
          "contiguous", [](const Tensor& t) -> Value { return t.contiguous(); }, Release())
      .def(
          "_update",
          [](const Value& t, nb::callable compute) {
            update_in_place(t, [&](const Value& old) { return nb::cast<Value>(compute(old)); });
          },
          "Replaces the content by compute(old content).")
      .def(
          "_write", [](const Value& t, const Value& source) { write_in_place(t, source); }, Release());
  bind_autograd_members(t);
  m.def("from_array", [](nb::object array) -> Value { return from_array(std::move(array)); });
  m.def(
      "wait",
      [](const std::vector<Value>& tensors) {
        wait_tensors({tensors.begin(), tensors.end()});
      },
      nb::arg("tensors"), "Waits until the steps that make these tensors are done.");
  return t;
}

}  // namespace sluice::python
