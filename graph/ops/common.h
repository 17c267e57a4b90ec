#pragma once
// Helpers that op definitions share: inference and placement rules of the usual shapes of op.
#include <vector>

#include "graph/op_def.h"

namespace sluice::ops {

using Present = std::span<const bool>;
using Values = std::vector<Value>;  // gradients

// The sample of an optional input that is left out.
inline const SampleInput kAbsent{.shape = {}, .absent = true};

// The axes `dim` (none or empty: all) of a tensor of `rank`, normalised, ascending, each once.
std::vector<int> reduced_axes(const Attr& dim, int rank, const char* where);
// Equal dtypes, as every primitive wants.
void check_same_dtype(Types inputs, const char* where);
void check_floating(const TensorType& x, const char* where);
void check_ordered(const TensorType& x);                       // not complex
void check_index(const TensorType& index, const char* where);  // int32 or int64

// Rows for elementwise ops with broadcasting: every axis of the output split, or everything broadcast.
std::vector<SbpRow> elementwise_sbp(Types inputs, const Attrs& attrs);
// elementwise_sbp and: partial sums go through when all inputs are partial (neg, add, sub, sum, movement).
std::vector<SbpRow> linear_sbp(Types inputs, const Attrs& attrs);
// elementwise_sbp and: partial sums go through one input at a time (mul).
std::vector<SbpRow> bilinear_sbp(Types inputs, const Attrs& attrs);
// The placements of movements: the axes named stay as they are and may be split; with `partial`, sums go through.
std::vector<SbpRow> untouched_sbp(Types inputs, const std::vector<int>& axes, bool partial = true);
// Everything broadcast.
std::vector<SbpRow> broadcast_sbp(Types inputs, const Attrs& attrs);
// The cost of lookups (inputs: table, index): only what is taken from the table is read.
Cost lookup_cost(Types inputs, Types outputs, const Attrs& attrs);
// OpDef::localize of ops whose first attribute is the shape of their output.
Attrs localize_shape(const Attrs& attrs, Types local_outputs);
// OpDef::grad of ops of which no gradient flows into their one input.
Values no_gradient(const GradContext&);
SbpRow row_of(std::vector<Sbp> inputs, Sbp output);

}  // namespace sluice::ops
