#pragma once
// Results that are as long as the data say: where a mask holds, and values that end with a row of their own.
#include <span>
#include <string>

#include "graph/op_def.h"

namespace sluice::ops {

// The positions at which a mask of one axis is true: int64 of its size, zeros behind the first `count`, an int64
// without axes.
struct Positions {
  Value at, count;
};
Positions positions(const Value& mask);
// x with zeros in place of the rows along `dim` from `extent`, an int64 without axes, on.
Value keep_rows(const Value& x, const Value& extent, int64_t dim);
// The same. In a graph it varies in length (graph/extents.h), by a dim of that name.
Value shorten(const Value& x, const Value& extent, int64_t dim, const std::string& name);

std::span<const OpDef* const> positions_ops();

}  // namespace sluice::ops
