#pragma once
// Axes that vary in length from step to step: which they are, and what says how long.
//
// A value of a graph has a fixed type. Results of some ops (OpDef::varying) may be shorter than their types: an axis
// has as many rows as a further value, the extent, says, and zeros beyond. An op carries such an axis on where a row of
// its placements (OpDef::sbp) has it split in inputs and outputs alike: what lies in a part of them then comes of the
// same part, so that rows within the extent come of rows within it, and what lies beyond does no harm. An op that mixes
// rows is refused, unless they are masked: joined row by row with a bool made of the extent, as where() does. A value
// that is masked is as long as its type says.
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace sluice::graph {

struct VaryingAxis {
  int axis = 0;
  ValueId extent = kNoValue;  // int64(): how long it is
  std::string dim;
};

class Extents {
 public:
  // Finds the extents of all that a step computes. Throws kUnsupported naming the op, its dim and the user's line where
  // rows of a dim are mixed, or a variable is updated with a value that varies.
  explicit Extents(const Graph& graph);
  // Finds the extents of what `value` depends on, in a graph that may be unfinished. Throws the same of ops.
  Extents(const Graph& graph, ValueId value);

  // The axes of the value that vary, in their order.
  const std::vector<VaryingAxis>& of(ValueId value) const { return axes_[value]; }

 private:
  struct Made {  // by one of the ops that make such values, or with no dim make them whole
    int output;
    VaryingAxis axis;
  };

  void infer(const std::vector<ValueId>& roots);
  void find_extents();
  void visit(size_t node);
  void carry(size_t node, ValueId extent);
  const VaryingAxis* find(ValueId value, int axis) const;
  bool made_of(ValueId value, ValueId extent) const;
  void add(ValueId value, VaryingAxis axis);
  [[noreturn]] void refuse(const Node& node, size_t input, const VaryingAxis& axis) const;

  const Graph& graph_;
  std::vector<std::vector<VaryingAxis>> axes_;  // per value
  std::vector<std::vector<ValueId>> made_of_;   // per value: extents, ascending
  std::vector<std::vector<Made>> made_;         // by node; empty where nothing varies
};

}  // namespace sluice::graph
