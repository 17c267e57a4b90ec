#include "source_location.h"

#include <nanobind/nanobind.h>

#include <filesystem>
#include <map>
#include <string>
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

// A plan does not depend on where the program lies nor on where it is started: a file is named relative to the longest
// folder of sys.path it lies in (the program's own comes first there), else by its last part.
std::string name_of_file(std::string_view file) {
  static auto* const names = new std::map<std::string, std::string, std::less<>>();
  if (const auto found = names->find(file); found != names->end()) return found->second;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(file, error).lexically_normal();
  const std::string whole = path.string();
  std::string name = path.filename().string();
  size_t longest = 0;
  for (nb::handle entry : nb::module_::import_("sys").attr("path")) {
    if (!nb::isinstance<nb::str>(entry)) continue;
    std::string folder = std::filesystem::absolute(nb::cast<std::string>(entry), error).lexically_normal().string();
    if (!folder.ends_with('/')) folder += '/';
    if (!whole.starts_with(folder) || folder.size() <= longest) continue;
    longest = folder.size();
    name = whole.substr(longest);
  }
  return names->emplace(file, name).first->second;
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
    const char* function = PyUnicode_AsUTF8(code->co_name);
    if (!ours) more = visit(file, PyFrame_GetLineNumber(frame), function == nullptr ? "?" : function);
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
  GilAcquire gil;
  SourceLocation location;
  visit_user_frames([&](const char* file, int line, const char*) {
    location = {name_of_file(file), line};
    return false;
  });
  return location;
}

std::vector<std::string> user_stack(int depth) {
  GilAcquire gil;
  std::vector<std::string> frames;
  visit_user_frames([&](const char* file, int line, const char* function) {
    frames.push_back(name_of_file(file) + ":" + std::to_string(line) + " in " + (function ? function : "?"));
    return static_cast<int>(frames.size()) < depth;
  });
  return frames;
}

}  // namespace sluice::python
