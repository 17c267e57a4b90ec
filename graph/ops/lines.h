#pragma once
// Computations along lines of one axis, where each element depends on others of its line: order, running extrema,
// recurrences.
#include <span>
#include <utility>

#include "graph/op_def.h"

namespace sluice::ops {

// int64, of x's shape: where the elements of a line, once sorted, were. Stable; NaN is the largest.
Value argsort(const Value& x, int64_t dim, bool descending = false);
// Elements [first, first + count) of that, or all from `first` on where `count` is -1. x has an axis.
Value order_part(const Value& x, int64_t dim, bool descending, int64_t first, int64_t count);
// int64: where the extremum of the elements up to each one is, the last of equal ones; NaN stays one.
Value running_argmax(const Value& x, int64_t dim);
Value running_argmin(const Value& x, int64_t dim);
// y[0] = b[0], y[i] = a[i] * y[i - 1] + b[i] along `dim`. a and b of one shape and dtype; or b of the first elements
// alone, to which nothing is added.
Value linear_recurrence(const Value& a, const Value& b, int64_t dim);

// Along a dim, as torch: products and extrema (with where they are) so far, and log(sum(exp)) without overflow.
Value cumprod(const Value& x, int64_t dim);
Value products_of_others(const Value& x, int64_t dim);  // along `dim`, of each element: of all but it
std::pair<Value, Value> cummax(const Value& x, int64_t dim);
std::pair<Value, Value> cummin(const Value& x, int64_t dim);
Value logcumsumexp(const Value& x, int64_t dim);

std::span<const OpDef* const> lines_ops();

}  // namespace sluice::ops
