"""Attention of several heads: torch.nn.functional.multi_head_attention_forward."""

from __future__ import annotations

import math
import warnings
from typing import Any

from sluice import _C
from sluice._tensor import creation
from sluice._C import fn, Tensor
from sluice._tensor.creation import zeros_like
from sluice.nn import functional as F


def float_mask(mask: Any, name: str, dtype: Any, other_dtype: Any = None, other_name: str = "") -> Any:
    """A mask to be added to scores: True becomes -inf. None stays None."""
    if mask is None:
        return None
    if mask.dtype is not _C.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if other_dtype is not None and mask.dtype is not other_dtype:
        warnings.warn(f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both instead.", stacklevel=3)
    if mask.is_floating_point():
        return mask
    zeros = creation.zeros(mask.shape, dtype=dtype, device=None if mask._traced else mask.device)
    return zeros.masked_fill(mask, -math.inf)


def dtype_of(mask: Any) -> Any:
    return None if mask is None else mask.dtype


def _check_ranks(query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Any, attn_mask: Any, heads: int) -> bool:
    """True for a batch."""
    rank = query.dim()
    if rank not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor")
    kind = f"For {'batched (3-D)' if rank == 3 else 'unbatched (2-D)'} `query`, expected"
    if key.dim() != rank or value.dim() != rank:
        raise AssertionError(f"{kind} `key` and `value` to be {rank}-D but found {key.dim()}-D and {value.dim()}-D tensors "
                             "respectively")
    if key_padding_mask is not None and key_padding_mask.dim() != rank - 1:
        raise AssertionError(f"{kind} `key_padding_mask` to be `None` or {rank - 1}-D but found {key_padding_mask.dim()}-D tensor "
                             "instead")
    if attn_mask is not None:
        if attn_mask.dim() not in (2, 3):
            raise AssertionError(f"{kind} `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor instead")
        expected = (heads, query.shape[0], key.shape[0])
        if rank == 2 and attn_mask.dim() == 3 and attn_mask.shape != expected:
            raise AssertionError(f"Expected `attn_mask` shape to be {expected} but got {attn_mask.shape!r}")
    return rank == 3


def _projected(query: Tensor, key: Tensor, value: Tensor, weight: Any, bias: Any) -> tuple:
    """q, k and v by one weight (3 E, E): by one matmul where they are one tensor."""
    e = query.shape[-1]
    if query is key and key is value:
        return F.linear(query, weight, bias).chunk(3, -1)
    w, b = weight.split([e, 2 * e]), (None, None) if bias is None else bias.split([e, 2 * e])
    if key is value:
        return (F.linear(query, w[0], b[0]), *F.linear(key, w[1], b[1]).chunk(2, -1))
    weights, biases = weight.chunk(3), (None,) * 3 if bias is None else bias.chunk(3)
    return tuple(F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))


def _static(name: str, given: Tensor, rows: int, width: int) -> Tensor:
    for dim, expected in ((0, rows), (2, width)):
        if given.size(dim) != expected:
            raise AssertionError(f"expecting static_{name}.size({dim}) of {expected}, but got {given.size(dim)}")
    return given


def _checked_heads(query: Tensor, key: Tensor, embed_dim_to_check: int, num_heads: int) -> int:
    """Features of a head."""
    _, batch, embed_dim = query.shape
    if embed_dim != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed_dim}")
    if key.shape[1] != batch:
        raise RuntimeError(f"multi_head_attention_forward: key has a batch of {key.shape[1]}; query has one of {batch}")
    head = embed_dim // num_heads
    if head * num_heads != embed_dim:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    return head


def _projected_apart(query: Tensor, key: Tensor, value: Tensor, weights: tuple[Any, Any, Any], bias: Any) -> tuple[Tensor, ...]:
    """Query, key and value, each by a weight of its own."""
    if key.shape[:2] != value.shape[:2]:
        raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
    for name, weight in zip("qkv", weights):
        if weight is None:
            raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return tuple(F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))


def _projected_together(query: Tensor, key: Tensor, value: Tensor, weight: Any, bias: Any) -> tuple[Tensor, ...]:
    """The same by the parts of one weight."""
    if key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape!r} does not match value shape {value.shape!r}")
    if weight is None:
        raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
    return _projected(query, key, value, weight, bias)


def _mask_of_all_heads(attn_mask: Any, rows: int, length: int, steps: int) -> Any:
    """attn_mask as (1 or rows, length, steps); None stays None."""
    if attn_mask is not None and attn_mask.dim() == 2:
        if attn_mask.shape != (length, steps):
            raise RuntimeError(f"The shape of the 2D attn_mask is {attn_mask.shape!r}, but should be {(length, steps)}.")
        return attn_mask.unsqueeze(0)
    if attn_mask is not None and attn_mask.shape != (rows, length, steps):
        raise RuntimeError(f"The shape of the 3D attn_mask is {attn_mask.shape!r}, but should be {(rows, length, steps)}.")
    return attn_mask


def _with_biases(k: Tensor, v: Tensor, bias_k: Any, bias_v: Any, static_k: Any, static_v: Any) -> tuple[Tensor, Tensor]:
    """Keys and values with a step more where there are biases."""
    if (bias_k is None) != (bias_v is None):
        raise AssertionError(f"bias_{'v' if bias_k is None else 'k'} is set but bias_{'k' if bias_k is None else 'v'} is None")
    if bias_k is None:
        return k, v
    for name, given in (("key", static_k), ("value", static_v)):
        if given is not None:
            raise AssertionError(f"bias cannot be added to static {name}.")
    _, batch, embed_dim = k.shape
    return fn.cat([k, bias_k.expand(1, batch, embed_dim)]), fn.cat([v, bias_v.expand(1, batch, embed_dim)])


def _with_padding(attn_mask: Any, key_padding_mask: Any, batch: int, num_heads: int, steps: int) -> Any:
    """attn_mask that also leaves out padding, the same for all heads of a sample."""
    if key_padding_mask is None:
        return attn_mask
    if key_padding_mask.shape[0] != batch:
        raise AssertionError(f"Expected key_padded_mask.shape[0] to be {batch}, but got {key_padding_mask.shape[0]}")
    if key_padding_mask.shape[1] != steps:
        raise AssertionError(f"Expected key_padded_mask.shape[1] to be {steps}, but got {key_padding_mask.shape[1]}")
    padding = key_padding_mask.reshape(batch, 1, 1, steps).expand(-1, num_heads, -1, -1).reshape(batch * num_heads, 1, steps)
    return padding if attn_mask is None else attn_mask + padding


def _weighed(q: Tensor, k: Tensor, v: Tensor, attn_mask: Any, dropout_p: float) -> tuple[Tensor, Tensor]:
    """(output, weights), of each head."""
    scores = (q * math.sqrt(1.0 / q.shape[-1])).bmm(k.transpose(1, 2))
    weights = F.softmax(scores if attn_mask is None else scores + attn_mask, -1)
    weights = F.dropout(weights, dropout_p) if dropout_p else weights
    return weights.bmm(v), weights


def _attended(q: Tensor, k: Tensor, v: Tensor, attn_mask: Any, dropout_p: float, is_causal: bool, batch: int) -> Tensor:
    """The same output where nobody asks for the weights."""
    rows, length, head = q.shape
    num_heads, steps = rows // batch, k.shape[1]
    q, k, v = (x.reshape(batch, num_heads, x.shape[1], head) for x in (q, k, v))
    if attn_mask is not None:
        attn_mask = attn_mask.unsqueeze(0) if attn_mask.shape[0] == 1 else attn_mask.reshape(batch, num_heads, -1, steps)
    return F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal).reshape(rows, length, head)


def multi_head_attention_forward(
        query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any, in_proj_bias: Any,
        bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor, out_proj_bias: Any,
        training: bool = True, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
        use_separate_proj_weight: bool = False, q_proj_weight: Any = None, k_proj_weight: Any = None, v_proj_weight: Any = None,
        static_k: Any = None, static_v: Any = None, average_attn_weights: bool = True,
        is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
    """(output, weights or None) of query (L, N, E), key and value (S, N, ...), or the same without N.

    key_padding_mask: (N, S), attn_mask: (L, S) or (N num_heads, L, S); True is left out, numbers are added to the scores.
    is_causal: says that attn_mask is the causal mask.
    """
    batched = _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same_key, same_value = key is query, value is key
        query = query.unsqueeze(1)
        key = query if same_key else key.unsqueeze(1)
        value = key if same_value else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, embed_dim = query.shape
    key_padding_mask = float_mask(key_padding_mask, "key_padding_mask", query.dtype, dtype_of(attn_mask), "attn_mask")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
                           "`generate_square_subsequent_mask` to create this mask.")
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None
    else:
        attn_mask, is_causal = float_mask(attn_mask, "attn_mask", query.dtype), False
    head = _checked_heads(query, key, embed_dim_to_check, num_heads)
    if use_separate_proj_weight:
        apart = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = _projected_apart(query, key, value, apart, in_proj_bias)
    else:
        q, k, v = _projected_together(query, key, value, in_proj_weight, in_proj_bias)
    rows, given_steps = batch * num_heads, k.shape[0]
    attn_mask = _mask_of_all_heads(attn_mask, rows, length, given_steps)
    k, v = _with_biases(k, v, bias_k, bias_v, static_k, static_v)
    added = k.shape[0] - given_steps

    def heads_of(x):
        return x.reshape(x.shape[0], rows, head).transpose(0, 1)

    q = heads_of(q)
    k = heads_of(k) if static_k is None else _static("k", static_k, rows, head)
    v = heads_of(v) if static_v is None else _static("v", static_v, rows, head)
    if add_zero_attn:
        k, v = (fn.cat([x, zeros_like(x[:, :1].detach())], 1) for x in (k, v))
        added += 1
    if added:
        attn_mask = None if attn_mask is None else F.pad(attn_mask, (0, added))
        key_padding_mask = None if key_padding_mask is None else F.pad(key_padding_mask, (0, added))
    steps = k.shape[1]
    attn_mask = _with_padding(attn_mask, key_padding_mask, batch, num_heads, steps)
    dropout_p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        output, weights = _weighed(q, k, v, attn_mask, dropout_p)
    else:
        output = _attended(q, k, v, attn_mask, dropout_p, is_causal, batch)
    output = F.linear(output.transpose(0, 1).reshape(length, batch, embed_dim), out_proj_weight, out_proj_bias)
    if weights is not None:
        weights = weights.reshape(batch, num_heads, length, steps)
        weights = weights.mean(1) if average_attn_weights else weights
    if not batched:
        output, weights = output.squeeze(1), None if weights is None else weights.squeeze(0)
    return output, weights
