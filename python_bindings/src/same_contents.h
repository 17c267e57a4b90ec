#pragma once
// The contents of a list, a dict, a set or an array of numbers, to be compared later.
#include <string>
#include <vector>

#include "bindings.h"

namespace sluice::python {

// Items of lists, keys and values of dicts are compared by address, sets by value, buffers by their bytes.
class SameContents {
 public:
  // `container` is a list, a dict, a set or has a buffer. Throws TypeError for others.
  explicit SameContents(nb::object container);
  bool hold() const;
  // For the garbage collector.
  int visit(visitproc visit, void* arg) const;

 private:
  enum class Kind { kList, kDict, kSet, kBuffer };
  static Kind kind_of(const nb::object& container);
  bool buffer_holds() const;

  nb::object container_;
  Kind kind_;
  std::vector<nb::object> items_;  // of a dict each key and its value; of a set a copy of it
  std::string form_, bytes_;       // of a buffer: type and shape, and what is in it
};

}  // namespace sluice::python
