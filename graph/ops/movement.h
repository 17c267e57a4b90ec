#pragma once
// Moving elements without computing on them. As in torch; negative axes count from the end.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// Views: no kernel runs where the input's strides allow.
Value reshape(const Value& x, const Ints& shape);  // one dim may be -1
Value permute(const Value& x, const Ints& dims);
Value expand(const Value& x, const Shape& shape);                                       // numpy broadcast to `shape`
Value slice(const Value& x, const Ints& starts, const Ints& stops, const Ints& steps);  // per axis; stop is exclusive
Value slice_axis(const Value& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);  // Python's slice rules

// Low and high padding per axis, and elements put between neighbours (interior; none by default); all >= 0.
Value pad(const Value& x, const Ints& low, const Ints& high, double value = 0, const Ints& interior = {});
Value concat(std::span<const Value> xs, int64_t dim = 0);  // promotes dtypes
Value flip(const Value& x, const Ints& dims);
Value copy(const Value& x);  // the same values in memory of their own

// For the compiler, which makes nodes of them. `reorder` is `copy` to another order of axes in memory; users have no
// such op, since a graph says nothing of memory before it is compiled.
const OpDef& copy_op();
const OpDef& reorder_op();
inline bool is_copy(const OpDef& op) { return &op == &copy_op() || &op == &reorder_op(); }

std::span<const OpDef* const> view_ops();
std::span<const OpDef* const> movement_ops();

}  // namespace sluice::ops
