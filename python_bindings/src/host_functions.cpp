// Python functions as kernels of host streams: numpy views in, arrays out, the GIL only around the user's code.
#include <nanobind/ndarray.h>

#include <cstring>

#include "bindings.h"
#include "graph/ops/host.h"
#include "graph_object.h"
#include "tensor/eager.h"

namespace sluice::python {
namespace {

nb::object numpy_view(void* data, const TensorSpec& spec, bool writable) {
  size_t shape[kMaxRank];
  int64_t strides[kMaxRank];
  for (int i = 0; i < spec.shape.rank(); ++i) {
    shape[i] = static_cast<size_t>(spec.shape[i]);
    strides[i] = spec.strides[i];
  }
  using Code = nb::dlpack::dtype_code;
  if (spec.dtype == DType::kBFloat16)
    fail(ErrorKind::kType, "host_function: bfloat16 has no numpy dtype; cast the tensor first");
  Code code = Code::Int;
  if (spec.dtype == DType::kBool) code = Code::Bool;
  if (spec.dtype == DType::kUInt8) code = Code::UInt;
  if (is_floating(spec.dtype)) code = Code::Float;
  const nb::dlpack::dtype dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(dtype_size(spec.dtype) * 8), 1};
  nb::object array =
      nb::cast(nb::ndarray<nb::numpy>(data, spec.shape.rank(), shape, nb::handle(Py_None), strides, dtype),
               nb::rv_policy::reference);
  if (!writable) array.attr("setflags")(nb::arg("write") = false);
  return array;
}

std::string text_of(nb::object object) { return nb::cast<std::string>(nb::str(nb::handle(object))); }

// What the exception in flight says: in one line, and with the frames of the user's function.
struct ExceptionText {
  std::string last_line;
  std::string traceback;
};

ExceptionText text_of_exception(nb::python_error& error) {
  PyObject *type = error.type().ptr(), *value = error.value().ptr(), *trace = error.traceback().ptr();
  Py_XINCREF(type);
  Py_XINCREF(value);
  Py_XINCREF(trace);
  PyErr_NormalizeException(&type, &value, &trace);  // before Python 3.12, `value` may be just a message
  const nb::object t = nb::steal(type), v = nb::steal(value), tb = trace != nullptr ? nb::steal(trace) : nb::none();
  const nb::object module = nb::module_::import_("traceback");
  const auto join = [](const nb::object& lines) { return nb::cast<std::string>(nb::str("").attr("join")(lines)); };
  std::string line = join(module.attr("format_exception_only")(t, v));
  line.resize(line.find_last_not_of('\n') + 1);
  return {line, join(module.attr("format_exception")(t, v, tb))};
}

void store(const std::string& name, nb::handle result, void* data, const TensorSpec& spec, size_t index) {
  nb::object target = numpy_view(data, spec, true);
  nb::object array = nb::module_::import_("numpy").attr("asarray")(result);
  if (!array.attr("shape").equal(target.attr("shape")))
    fail(ErrorKind::kValue, "host function '{}': result {} has shape {}; declared was {}", name, index,
         text_of(array.attr("shape")), spec.shape.str());
  if (!array.attr("dtype").equal(target.attr("dtype")))
    fail(ErrorKind::kType, "host function '{}': result {} has dtype {}; declared was {}", name, index,
         text_of(array.attr("dtype")), dtype_name(spec.dtype));
  target.attr("__setitem__")(nb::ellipsis(), array);
}

void run(const std::string& name, nb::handle callable, const KernelArgs& args, const std::vector<TensorSpec>& inputs,
         const std::vector<TensorSpec>& outputs) {
  nb::list arrays;
  for (size_t i = 0; i < inputs.size(); ++i)
    arrays.append(numpy_view(const_cast<void*>(args.inputs[i]), inputs[i], false));
  // Only the call itself may be ended with its thread: behind it, unwinding would drop objects without the GIL.
  const nb::tuple operands(arrays);
  nb::object result = nb::steal(unless_ended([&] { return PyObject_CallObject(callable.ptr(), operands.ptr()); }));
  if (!result.is_valid()) nb::raise_python_error();
  const bool several = nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result);
  nb::tuple results = several ? nb::tuple(result) : nb::make_tuple(result);
  if (results.size() != outputs.size())
    fail(ErrorKind::kValue, "host function '{}': returned {} arrays; declared were {}", name, results.size(),
         outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) store(name, results[i], args.outputs[i], outputs[i], i);
}

}  // namespace

HostFunction host_function_of(const std::string& name, nb::object callable) {
  return [name, function = SharedObject(std::move(callable))](
             const KernelArgs& args, const std::vector<TensorSpec>& inputs, const std::vector<TensorSpec>& outputs) {
    if (!Py_IsInitialized()) fail(ErrorKind::kCancelled, "host function '{}': the interpreter has ended", name);
    GilAcquire gil;
    try {
      run(name, function.get(), args, inputs, outputs);
    } catch (nb::python_error& error) {
      const ExceptionText text = text_of_exception(error);
      fail(ErrorKind::kRuntime, "host function '{}' raised {}\n{}", name, text.last_line, text.traceback);
    }
  };
}

void bind_host_functions(nb::module_& m) {
  m.def("register_host_function", [](const std::string& name, nb::callable function) {
    default_eager().host_functions()[name] = host_function_of(name, function);
  });
  m.def(
      "call_host_function",
      [](const std::vector<Value>& inputs, const std::string& name,
         const std::vector<std::pair<Shape, DType>>& outputs) {
        std::vector<TensorType> types;
        for (const auto& [shape, dtype] : outputs) types.push_back({dtype, shape});
        return ops::host_function(inputs, name, types);
      },
      Release());
}

}  // namespace sluice::python
