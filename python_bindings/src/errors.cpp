// Error kinds as Python exceptions: each is sluice.Error, which is a RuntimeError as most errors of torch are, and the
// builtin that Python programmers expect.
#include "errors.h"

#include <string>

#include "base/error.h"
#include "bindings.h"
#include "fix.h"
#include "source_location.h"

namespace sluice::python {
namespace {

struct Mapping {
  ErrorKind kind;
  const char* name;
  PyObject* builtin;
  PyObject* type = nullptr;
};

std::vector<Mapping>& mappings() {
  static std::vector<Mapping> list = {
      {ErrorKind::kValue, "ValueError", PyExc_ValueError},
      {ErrorKind::kType, "TypeError", PyExc_TypeError},
      {ErrorKind::kIndex, "IndexError", PyExc_IndexError},
      {ErrorKind::kRuntime, "RuntimeError", PyExc_RuntimeError},
      {ErrorKind::kUnsupported, "NotImplementedError", PyExc_NotImplementedError},
      {ErrorKind::kMemory, "MemoryError", PyExc_MemoryError},
      {ErrorKind::kTimeout, "TimeoutError", PyExc_TimeoutError},
      {ErrorKind::kIo, "OSError", PyExc_OSError},
      {ErrorKind::kCancelled, "CancelledError", PyExc_RuntimeError},
      {ErrorKind::kDevice, "DeviceError", PyExc_RuntimeError},
      {ErrorKind::kEndOfData, "EndOfData", PyExc_EOFError},
      {ErrorKind::kLinAlg, "LinAlgError", PyExc_RuntimeError},
  };
  return list;
}

// The message with the user's line, unless the error already names one.
std::string located(const Error& error) {
  std::string message = error.what();
  const bool has_line = message.size() > 2 && message.back() == ')' && message.find(".py:") != std::string::npos;
  if (!has_line) {
    const SourceLocation line = user_location();
    if (line.known()) message += "  (" + line.str() + ")";
  }
  return message;
}

// The fix stands behind the message, and is the exception's `fix`.
void raise(PyObject* type, std::string message, const Fix& fix) {
  if (fix.empty()) {
    // It may name what a file has, which may be no UTF-8.
    const auto size = static_cast<Py_ssize_t>(message.size());
    const nb::object text = nb::steal(PyUnicode_DecodeUTF8(message.data(), size, "replace"));
    PyErr_SetObject(type, text.ptr());
    return;
  }
  message += "\n  fix: " + fix_str(fix);
  nb::object exception = nb::borrow(type)(message);
  exception.attr("fix") = fix_dict(fix);
  PyErr_SetObject(type, exception.ptr());
}

nb::object python_value(const Attr& attr) {
  return std::visit(
      [](const auto& v) -> nb::object {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, NoAttr>)
          return nb::none();
        else if constexpr (std::is_same_v<T, DType>)
          return nb::cast(std::string(dtype_name(v)));
        else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
                           std::is_same_v<T, std::string> || std::is_same_v<T, Ints>)
          return nb::cast(v);
        else
          return nb::cast(attr_str(v));
      },
      attr);
}

}  // namespace

nb::dict fix_dict(const Fix& fix) {
  nb::dict dict;
  for (const auto& [name, value] : fix) dict[name.c_str()] = python_value(value);
  return dict;
}

Fix fix_from(const nb::dict& dict) {
  Fix fix;
  for (auto [key, value] : dict) {
    const std::string name = nb::cast<std::string>(key);
    Ints list;
    if (value.is_none())
      fix.emplace_back(name, Attr());
    else if (nb::isinstance<nb::bool_>(value))
      fix.emplace_back(name, nb::cast<bool>(value));
    else if (nb::isinstance<nb::int_>(value))
      fix.emplace_back(name, nb::cast<int64_t>(value));
    else if (name == "to_dtype")
      fix.emplace_back(name, parse_dtype(nb::cast<std::string>(value)));
    else if (nb::isinstance<nb::str>(value))
      fix.emplace_back(name, nb::cast<std::string>(value));
    else if (nb::try_cast(value, list))
      fix.emplace_back(name, list);
    else
      fail(ErrorKind::kValue, "fix: '{}' is of an unknown kind; must be a bool, int, text, list or None", name);
  }
  return fix;
}

static void out_of_memory() {
  for (const Mapping& mapping : mappings())
    if (mapping.kind == ErrorKind::kMemory)
      PyErr_SetString(mapping.type, "allocate: out of memory; free some and try again");
}

void bind_errors(nb::module_& m) {
  PyObject* base =
      PyErr_NewExceptionWithDoc("sluice.Error", "Base of all errors of Sluice.", PyExc_RuntimeError, nullptr);
  nb::setattr(nb::handle(base), "fix", nb::none());  // of errors that know the smallest change that avoids them: a dict
  m.attr("Error") = nb::handle(base);
  for (Mapping& mapping : mappings()) {
    nb::tuple bases = mapping.builtin == PyExc_RuntimeError
                          ? nb::make_tuple(nb::handle(base))
                          : nb::make_tuple(nb::handle(mapping.builtin), nb::handle(base));
    const std::string name = std::string("sluice.errors.") + mapping.name;
    mapping.type = PyErr_NewException(name.c_str(), bases.ptr(), nullptr);
    m.attr(mapping.name) = nb::handle(mapping.type);
  }
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error&) {
      set_python_error();
    } catch (const std::bad_alloc&) {
      set_python_error();
    } catch (const std::length_error&) {
      set_python_error();
    }
  });
}

void set_python_error() {
  try {
    throw;
  } catch (const Error& error) {
    for (const Mapping& mapping : mappings())
      if (mapping.kind == error.kind()) raise(mapping.type, located(error), fix_of(error));
  } catch (const std::bad_alloc&) {
    out_of_memory();
  } catch (const std::length_error&) {  // of a container that no memory could hold
    out_of_memory();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

}  // namespace sluice::python
