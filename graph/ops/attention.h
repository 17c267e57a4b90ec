#pragma once
// Attention: softmax(q k^T scale + mask) v as one op, which never holds the weights.
#include <optional>
#include <span>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

struct AttentionOptions {
  Value mask;  // bool (true = take part) or added to the scores; broadcastable to (..., L, S)
  bool is_causal = false;
  std::optional<double> scale;  // default 1/sqrt(head dim)
  bool enable_gqa = false;      // each head of k and v serves as many of q's (dim -3) as there are more
  // Weights are dropped as by dropout() of them, from this state and salt. The state may be undefined where p is 0.
  double dropout_p = 0;
  Value dropout_state = {};
  int64_t dropout_salt = 0;
};
// torch.nn.functional.scaled_dot_product_attention. q (..., L, E), k (..., S, E), v (..., S, Ev), whose leading dims
// broadcast. A row that the mask leaves nothing gives zeros.
Value scaled_dot_product_attention(const Value& q, const Value& k, const Value& v,
                                   const AttentionOptions& options = {});

std::span<const OpDef* const> attention_ops();
bool is_attention(const OpDef& op);  // or its backward

}  // namespace sluice::ops
