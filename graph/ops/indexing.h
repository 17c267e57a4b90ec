#pragma once
// Reading and writing at integer indices (int64 or int32), as in torch. An index outside the axis is an error of the
// kernel that names it.
#include <span>
#include <string>
#include <vector>

#include "graph/op_def.h"

namespace sluice::ops {

Value gather(const Value& x, const Value& index, int64_t dim);
Value scatter(const Value& x, const Value& index, const Value& src, int64_t dim);  // repeated index: the last wins
Value scatter_add(const Value& x, const Value& index, const Value& src, int64_t dim);
// reduce: "prod", "amax" or "amin"; x takes part.
Value scatter_reduce(const Value& x, const Value& index, const Value& src, int64_t dim, const std::string& reduce);
Value index_select(const Value& x, const Value& index, int64_t dim);  // index of rank 1
Value index_add(const Value& x, const Value& index, const Value& src, int64_t dim);
Value take_along(const Value& x, const Value& index, int64_t dim);  // gather with broadcast indices
// x with values written, or added, where the indices of its leading dims meet: broadcast, from the end where negative.
Value index_put(const Value& x, const std::vector<Value>& indices, const Value& values, bool accumulate);
// Joins an int64 index into each of several dims to one into all of them; negative ones count from the end.
Value flat_index(const std::vector<Value>& indices, const Ints& sizes);
Value one_hot(const Value& index, int64_t num_classes);  // int64, as torch

std::span<const OpDef* const> indexing_ops();
std::span<const OpDef* const> flat_index_ops();

}  // namespace sluice::ops
