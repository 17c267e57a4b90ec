#include "same_contents.h"

#include <cstring>

namespace sluice::python {
namespace {

class Buffer {
 public:
  explicit Buffer(PyObject* object) : there_(PyObject_GetBuffer(object, &view_, PyBUF_FULL_RO) == 0) {
    if (!there_) PyErr_Clear();
  }
  ~Buffer() {
    if (there_) PyBuffer_Release(&view_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  bool there() const { return there_; }
  size_t bytes() const { return static_cast<size_t>(view_.len); }

  bool is_of(const std::string& form) const {
    const size_t named = std::strlen(name()), shaped = shape_bytes();
    return form.size() == named + shaped && std::memcmp(form.data(), name(), named) == 0 &&
           (shaped == 0 || std::memcmp(form.data() + named, view_.shape, shaped) == 0);
  }

  std::string form() const {
    std::string form = name();
    if (shape_bytes() != 0) form.append(reinterpret_cast<const char*>(view_.shape), shape_bytes());
    return form;
  }

  // Bytes one after another; null where they lie otherwise.
  const void* contiguous() const { return PyBuffer_IsContiguous(&view_, 'C') != 0 ? view_.buf : nullptr; }

  std::string content() const {
    std::string content(bytes(), '\0');
    if (!content.empty() && PyBuffer_ToContiguous(content.data(), &view_, view_.len, 'C') != 0)
      nb::raise_python_error();
    return content;
  }

 private:
  const char* name() const { return view_.format != nullptr ? view_.format : "B"; }
  size_t shape_bytes() const {
    return view_.shape != nullptr ? static_cast<size_t>(view_.ndim) * sizeof(Py_ssize_t) : 0;
  }

  Py_buffer view_{};
  bool there_;
};

}  // namespace

SameContents::Kind SameContents::kind_of(const nb::object& container) {
  PyObject* c = container.ptr();
  if (PyList_Check(c)) return Kind::kList;
  if (PyDict_Check(c)) return Kind::kDict;
  if (PyAnySet_Check(c)) return Kind::kSet;
  if (PyObject_CheckBuffer(c)) return Kind::kBuffer;
  throw nb::type_error("SameContents: got no list, dict, set or buffer");
}

SameContents::SameContents(nb::object container) : container_(std::move(container)), kind_(kind_of(container_)) {
  PyObject* c = container_.ptr();
  if (kind_ == Kind::kList) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(c); ++i) items_.push_back(nb::borrow(PyList_GET_ITEM(c, i)));
  } else if (kind_ == Kind::kDict) {
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(c, &at, &key, &value);) {
      items_.push_back(nb::borrow(key));
      items_.push_back(nb::borrow(value));
    }
  } else if (kind_ == Kind::kSet) {
    items_.push_back(nb::steal(PyFrozenSet_New(c)));
    if (!items_.back().is_valid()) nb::raise_python_error();
  } else {
    const Buffer buffer(c);
    if (!buffer.there()) throw nb::type_error("SameContents: the buffer cannot be read");
    form_ = buffer.form(), bytes_ = buffer.content();
  }
}

bool SameContents::hold() const {
  PyObject* c = container_.ptr();
  if (kind_ == Kind::kList) {
    if (static_cast<size_t>(PyList_GET_SIZE(c)) != items_.size()) return false;
    for (size_t i = 0; i < items_.size(); ++i)
      if (PyList_GET_ITEM(c, static_cast<Py_ssize_t>(i)) != items_[i].ptr()) return false;
    return true;
  }
  if (kind_ == Kind::kDict) {
    if (static_cast<size_t>(PyDict_Size(c)) * 2 != items_.size()) return false;
    PyObject *key = nullptr, *value = nullptr;
    size_t i = 0;
    for (Py_ssize_t at = 0; PyDict_Next(c, &at, &key, &value); i += 2)
      if (key != items_[i].ptr() || value != items_[i + 1].ptr()) return false;
    return true;
  }
  if (kind_ == Kind::kBuffer) return buffer_holds();
  const int equal = PyObject_RichCompareBool(c, items_.front().ptr(), Py_EQ);
  if (equal < 0) PyErr_Clear();  // an item that does not compare: Python looks
  return equal == 1;
}

bool SameContents::buffer_holds() const {
  const Buffer buffer(container_.ptr());
  if (!buffer.there() || buffer.bytes() != bytes_.size() || !buffer.is_of(form_)) return false;
  const void* content = buffer.contiguous();
  return content != nullptr ? bytes_.empty() || std::memcmp(content, bytes_.data(), bytes_.size()) == 0
                            : buffer.content() == bytes_;
}

int SameContents::visit(visitproc visit, void* arg) const {
  Py_VISIT(container_.ptr());
  for (const nb::object& item : items_) Py_VISIT(item.ptr());
  return 0;
}

}  // namespace sluice::python
