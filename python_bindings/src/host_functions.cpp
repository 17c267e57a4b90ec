// Python functions as kernels of host streams: numpy arrays in and out, the GIL only around the user's code.
#include <nanobind/ndarray.h>

#include <cstring>

#include "bindings.h"
#include "graph_object.h"
#include "kernels/host_args.h"
#include "tensor/eager.h"
#include "tensor/host_call.h"
#include "tensor/trace_executor.h"

namespace sluice::python {
namespace {

// REQUIRES: nothing of it lives on when `data` goes.
nb::object numpy_view(void* data, const TensorSpec& spec) {
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
  return nb::cast(nb::ndarray<nb::numpy>(data, spec.shape.rank(), shape, nb::handle(Py_None), strides, dtype),
                  nb::rv_policy::reference);
}

// A function, and the arrays in which its operands come: copies, because the function may keep them, or anything made
// of them, for as long as it likes. An array that it has not kept is used again, so in steady state none is made.
class Callee {
 public:
  explicit Callee(nb::object function) : function_(std::move(function)) {}
  nb::handle function() const { return function_; }

  // The content of `data`, in an array to be given back.
  nb::object take(const void* data, const TensorSpec& spec) {
    const nb::object source = numpy_view(const_cast<void*>(data), spec);
    nb::object array;
    for (size_t i = 0; i < arrays_.size() && !array.is_valid(); ++i) {
      if (!fits(arrays_[i], source)) continue;
      array = std::move(arrays_[i]);
      arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (!array.is_valid())
      array = nb::module_::import_("numpy").attr("empty")(source.attr("shape"), source.attr("dtype"));
    array.attr("__setitem__")(nb::ellipsis(), source);
    return array;
  }
  // Every array, view, buffer or tensor over the array's memory holds a reference to it.
  void give_back(nb::object array) {
    if (Py_REFCNT(array.ptr()) == 1 && arrays_.size() < kKept) arrays_.push_back(std::move(array));
  }

 private:
  static constexpr size_t kKept = 16;  // of one function's operands, in all its calls at a time
  static bool fits(const nb::object& array, const nb::object& source) {
    return array.attr("shape").equal(source.attr("shape")) && array.attr("dtype").equal(source.attr("dtype"));
  }
  const nb::object function_;
  std::vector<nb::object> arrays_;
};

// The operands of one call.
class Operands {
 public:
  Operands(Callee& callee, const KernelArgs& args, const std::vector<TensorSpec>& specs) : callee_(callee) {
    for (size_t i = 0; i < specs.size(); ++i) arrays_.push_back(callee.take(args.inputs[i], specs[i]));
  }
  ~Operands() {
    for (nb::object& array : arrays_) callee_.give_back(std::move(array));
  }
  // Views that cannot be written through.
  nb::tuple views() const {
    nb::list views;
    for (const nb::object& array : arrays_) {
      const nb::object view = array.attr("view")();
      view.attr("setflags")(nb::arg("write") = false);
      views.append(view);
    }
    return nb::tuple(views);
  }

 private:
  Callee& callee_;
  std::vector<nb::object> arrays_;
};

std::string text_of(nb::object object) { return nb::cast<std::string>(nb::str(nb::handle(object))); }

// The text of the exception in flight: in one line, and with the frames of the user's function.
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

// How long the axes of dims are in the arrays that a function returned. Those of a dim that came with the inputs are as
// long as there; of another dim, the first array says how long.
class Extents {
 public:
  Extents(const std::string& name, const KernelArgs& args) : name_(name), args_(host_args(args)) {
    said_.resize(args_.extents.size());
    for (int d = 0; d < args_.dims.taken; ++d) said_[d] = "its inputs";
  }
  // The type of result `index` cut to what `array` has, where that may be. Other axes are for the caller to compare.
  TensorSpec cut(TensorSpec spec, size_t index, const nb::object& array) {
    if (nb::cast<int>(array.attr("ndim")) != spec.shape.rank()) return spec;
    for (const HostDims::Axis& axis : args_.dims.outputs) {
      if (axis.tensor != static_cast<int>(index)) continue;
      const auto got = nb::cast<int64_t>(array.attr("shape")[axis.axis]);
      const std::string& dim = args_.dims.names[axis.dim];
      SLUICE_CHECK(got <= spec.shape[axis.axis],
                   "host function '{}': result {} has {} of dim '{}' (axis {}); at most {} were declared", name_, index,
                   got, dim, axis.axis, spec.shape[axis.axis]);
      int64_t& extent = args_.extents[axis.dim];
      std::string& by = said_[axis.dim];
      if (by.empty()) {
        extent = got;
        by = fmt::format("result {}", index);
      }
      SLUICE_CHECK(got == extent, "host function '{}': result {} has {} of dim '{}' (axis {}); {} of {} must be equal",
                   name_, index, got, dim, axis.axis, extent, by);
      spec.shape[axis.axis] = got;
    }
    return spec;
  }

 private:
  const std::string& name_;
  const HostArgs& args_;
  std::vector<std::string> said_;  // per dim: what has it as long as that
};

void store(const std::string& name, nb::handle result, void* data, const TensorSpec& declared, size_t index,
           Extents& extents) {
  nb::object array = nb::module_::import_("numpy").attr("asarray")(result);
  const TensorSpec spec = extents.cut(declared, index, array);
  nb::object target = numpy_view(data, spec);
  if (!array.attr("shape").equal(target.attr("shape")))
    fail(ErrorKind::kValue, "host function '{}': result {} has shape {}; declared was {}", name, index,
         text_of(array.attr("shape")), declared.shape.str());
  if (!array.attr("dtype").equal(target.attr("dtype")))
    fail(ErrorKind::kType, "host function '{}': result {} has dtype {}; declared was {}", name, index,
         text_of(array.attr("dtype")), dtype_name(spec.dtype));
  target.attr("__setitem__")(nb::ellipsis(), array);
}

void run(const std::string& name, Callee& callee, const KernelArgs& args, const std::vector<TensorSpec>& inputs,
         const std::vector<TensorSpec>& outputs) {
  const Operands operands(callee, args, inputs);
  nb::object result;
  {
    const nb::tuple views = operands.views();
    // Only the call itself may be ended with its thread: behind it, unwinding would drop objects without the GIL.
    result = nb::steal(unless_ended([&] { return PyObject_CallObject(callee.function().ptr(), views.ptr()); }));
  }
  if (!result.is_valid()) nb::raise_python_error();
  const bool several = nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result);
  nb::tuple results = several ? nb::tuple(result) : nb::make_tuple(result);
  if (results.size() != outputs.size())
    fail(ErrorKind::kValue, "host function '{}': returned {} arrays; must be {}, as declared", name, results.size(),
         outputs.size());
  Extents extents(name, args);
  for (size_t i = 0; i < outputs.size(); ++i) store(name, results[i], args.outputs[i], outputs[i], i, extents);
}

}  // namespace

HostFunction host_function_of(const std::string& name, nb::object callable) {
  const auto callee = shared_with_gil(Callee(std::move(callable)));
  return [name, callee](const KernelArgs& args, const std::vector<TensorSpec>& inputs,
                        const std::vector<TensorSpec>& outputs) {
    if (!Py_IsInitialized()) fail(ErrorKind::kCancelled, "host function '{}': the interpreter has ended", name);
    GilAcquire gil;
    try {
      run(name, *callee, args, inputs, outputs);
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_StopIteration))
        fail(ErrorKind::kEndOfData, "host function '{}': its data has ended", name);
      const ExceptionText text = text_of_exception(error);
      fail(ErrorKind::kRuntime, "host function '{}' raised {}\n{}", name, text.last_line, text.traceback);
    }
  };
}

void bind_host_functions(nb::module_& m) {
  // Each output has per axis its size, or the most of a dim and the dim's name.
  using Axis = std::pair<int64_t, std::string>;
  m.def("call_host_function", [](const std::vector<Value>& inputs, const std::string& name, nb::callable function,
                                 const std::vector<std::pair<std::vector<Axis>, DType>>& outputs) {
    std::vector<HostOutput> declared;
    for (const auto& [axes, dtype] : outputs) {
      HostOutput& output = declared.emplace_back();
      output.type.dtype = dtype;
      for (const auto& [size, dim] : axes) {
        output.type.shape.push_back(size);
        output.dims.push_back(dim);
      }
    }
    const HostFunctions functions{{name, host_function_of(name, std::move(function))}};
    const GilRelease release;
    const HostFunctionScope scope(functions);
    return call_host_function(inputs, name, declared);
  });
  m.def("extent", [](const Value& x, int64_t dim) { return extent_of(x, dim); });
  m.def(
      "dims_that_vary",
      [](const Value& x) {
        std::vector<std::pair<int, std::string>> dims;
        if (TraceExecutor* const trace = current_trace(); trace != nullptr && trace->touches_graph(x))
          for (const graph::VaryingAxis& axis : trace->varying_axes(x)) dims.emplace_back(axis.axis, axis.dim);
        return dims;
      },
      "The axes of a value of the graph that is traced which are as long as a step makes them, and their dims.");
}

}  // namespace sluice::python
