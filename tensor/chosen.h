#pragma once
// Which elements a mask chooses, and results with as many rows as it chooses elements.
#include <vector>

#include "graph/value.h"

namespace sluice {

// Graphs that this thread traces meanwhile have no values that vary in length: what asks for one raises. For programs
// that may read a shape without knowing that they are traced.
class FixedLengthsScope {
 public:
  FixedLengthsScope();
  ~FixedLengthsScope();
  FixedLengthsScope(const FixedLengthsScope&) = delete;
  FixedLengthsScope& operator=(const FixedLengthsScope&) = delete;
};

// Throws kRuntime: in the graph that is traced the result of `function` cannot be as long as the data say.
[[noreturn]] void refuse_length(const char* function, const char* instead);

// x with zeros in place of what is not there, where some of `count` axes from `first` on vary in length; they do not
// then.
Value filled_up(const Value& x, int first, int count);

// In a graph there are as many positions as the mask has elements, zeros behind those that it chooses, and rows made by
// them are cut by rows(); otherwise exactly those.
class Chosen {
 public:
  // Chooses by a mask for `function`, which names itself in errors and the dim of what varies. A row that is not there
  // is not chosen. Throws kRuntime with `instead` where a graph of fixed lengths is traced.
  Chosen(const Value& mask, const char* function, const char* instead);

  const Value& at() const { return at_; }  // int64, in row-major order of the mask
  // The index of each along each axis of the mask.
  std::vector<Value> columns() const;
  // `made_by_them`, whose length along `axis` is from now on the number of what is chosen.
  Value rows(const Value& made_by_them, int axis = 0) const;
  // Tells, in a graph, whether `x` is as long as that along `axis`.
  bool as_long(const Value& x, int axis) const;
  // Gives, in a graph, for each element of the mask, along `axis`, the row of `x` that belongs to the last one chosen
  // up to it. REQUIRES: as_long(x, axis).
  Value spread(const Value& x, int axis) const;
  // How many there are: int64(). Undefined outside of graphs.
  const Value& count() const { return count_; }

 private:
  const char* function_;
  Shape shape_;
  Value mask_, at_, count_;  // the mask: bool of one axis
};

}  // namespace sluice
