"""torch.nn.functional: functions of networks. All but those that draw random numbers are forms: graph/forms."""

from __future__ import annotations

from typing import Any

import sluice
from sluice import _C
from sluice._C import Tensor
from sluice._C.functional import *  # noqa: F403


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if inplace:
        input._update(lambda old: dropout(old, p))
        return input
    return input * 0.0 if p == 1 else sluice.default_generator.dropout(input, p)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: Any = None) -> Tensor:
    """softmax(query key^T scale + attn_mask) value; a row whose mask leaves nothing gives zeros.

    query: (..., L, E), key: (..., S, E), value: (..., S, Ev); attn_mask: bool (True takes part) or added to the scores,
    broadcastable to (..., L, S); scale: 1 / sqrt(E) by default.
    """
    query, key, value = _C.autocast_lower([query, key, value])
    return sluice.default_generator.attention(query, key, value, attn_mask, dropout_p, is_causal, scale)


from sluice.nn._attention import multi_head_attention_forward as multi_head_attention_forward  # noqa: E402
