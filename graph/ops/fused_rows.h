#pragma once
// Elementwise ops with reductions of rows among them as one op, which the compiler makes for devices that have a
// kernel.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// The steps are its attribute `body`, whose values are as large as all operands together, or have one element for each
// row: its reductions are all over the same last axes, which stay as size 1.
const OpDef& fused_rows_op();

// Has the op the form of a reduction over axes? The device says which it takes.
bool reduces_axes(const OpDef& op);
// The number of axes, where a reduction of `shape` is over the last ones; else 0.
int last_axes_reduced(const Attrs& attrs, const Shape& shape);
// Has an operand, where the last `axes` of `whole` are reduced, whole rows or one element for each?
bool goes_with_rows(const Shape& shape, const Shape& whole, int axes);

std::span<const OpDef* const> fused_rows_ops();

}  // namespace sluice::ops
