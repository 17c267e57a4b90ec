// Error kinds as Python exceptions: each is sluice.Error and the builtin that Python programmers expect.
#include <string>

#include "base/error.h"
#include "bindings.h"
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

}  // namespace

void bind_errors(nb::module_& m) {
  PyObject* base = PyErr_NewExceptionWithDoc("sluice.Error", "Base of all errors of Sluice.", nullptr, nullptr);
  m.attr("Error") = nb::handle(base);
  for (Mapping& mapping : mappings()) {
    nb::tuple bases = nb::make_tuple(nb::handle(base), nb::handle(mapping.builtin));
    const std::string name = std::string("sluice.errors.") + mapping.name;
    mapping.type = PyErr_NewException(name.c_str(), bases.ptr(), nullptr);
    m.attr(mapping.name) = nb::handle(mapping.type);
  }
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      for (const Mapping& mapping : mappings())
        if (mapping.kind == error.kind()) PyErr_SetString(mapping.type, located(error).c_str());
    }
  });
}

}  // namespace sluice::python
