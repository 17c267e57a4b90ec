#include "source_location.h"

#include <nanobind/nanobind.h>

#include <filesystem>
#include <string_view>

#include "bindings.h"

namespace sluice::python {
namespace {

// Directory of the package, with a trailing slash: frames of files below it are ours, not the user's.
const std::string& package_dir() {
  static const std::string dir = [] {
    nb::object path = nb::module_::import_("sluice").attr("__path__")[0];
    return nb::cast<std::string>(path) + "/";
  }();
  return dir;
}

// Paths in plans are relative, so that a plan does not depend on where the program lies.
std::string relative_to_here(std::string_view file) {
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string() + "/";
  return std::string(file.starts_with(here) ? file.substr(here.size()) : file);
}

template <class Visit>
void visit_user_frames(Visit&& visit) {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  bool more = true;
  while (frame != nullptr && more) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    const bool ours = file == nullptr || std::string_view(file).starts_with(package_dir()) || file[0] == '<';
    if (!ours) more = visit(file, PyFrame_GetLineNumber(frame), PyUnicode_AsUTF8(code->co_name));
    Py_DECREF(code);
    PyFrameObject* back = more ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
  PyErr_Clear();
}

}  // namespace

SourceLocation user_location() {
  if (!Py_IsInitialized()) return {};
  nb::gil_scoped_acquire gil;
  SourceLocation location;
  visit_user_frames([&](const char* file, int line, const char*) {
    location = {relative_to_here(file), line};
    return false;
  });
  return location;
}

std::vector<std::string> user_stack(int depth) {
  nb::gil_scoped_acquire gil;
  std::vector<std::string> frames;
  visit_user_frames([&](const char* file, int line, const char* function) {
    frames.push_back(relative_to_here(file) + ":" + std::to_string(line) + " in " + (function ? function : "?"));
    return static_cast<int>(frames.size()) < depth;
  });
  return frames;
}

}  // namespace sluice::python
