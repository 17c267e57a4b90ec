#pragma once
// The elementwise part of steps of recurrent nets, as one op.
#include <span>
#include <vector>

#include "graph/op_def.h"

namespace sluice::ops {

// {h, c', gates} of an LSTM's step: gates are the sigmoids of i, f and o and the tanh of g, of the sums of `input` and
// `hidden` (batch, 4 * size), which are in the order i, f, g, o; c' = f c + i g, h = o tanh(c'). c: (batch, size).
std::vector<Value> lstm_cell(const Value& input, const Value& hidden, const Value& c);

std::span<const OpDef* const> recurrent_ops();

}  // namespace sluice::ops
