#pragma once
#include "graph/value.h"

namespace sluice::ops {

// Connectionist temporal classification: -log of the probability that log_probs (T, N, C) spell the targets, per
// sample. targets: (N, S), or the samples' one after the other; lengths (N,). Its gradient is torch's, that of
// log_probs which log_softmax made: exp(log_probs) is part of it. Graves et al., 2006.
Value ctc_loss(const Value& log_probs, const Value& targets, const Value& input_lengths, const Value& target_lengths,
               int64_t blank);

}  // namespace sluice::ops
