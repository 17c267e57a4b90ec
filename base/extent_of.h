#pragma once
// One output of a graph, or of its plan, may tell the length of an axis of another one.
#include <string>

namespace sluice {

// It tells how long an axis of the other is in a step, at most as long as there is room for: an int64 without axes,
// which callers do not see.
struct ExtentOf {
  std::string output;  // the other's name; of one on several devices the name of the whole
  int axis = 0;
  std::string dim;
  bool operator==(const ExtentOf&) const = default;
};

}  // namespace sluice
