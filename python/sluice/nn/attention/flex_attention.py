"""Attention whose scores and mask are functions: torch.nn.attention.flex_attention.

A `score_mod(score, batch, head, q, kv)` changes scores (B, H, L, S); a `mask_mod(batch, head, q, kv)` says which of them take part.
Both are called once, with int32 indices that broadcast to (B, H, L, S), so they are written for one score, as in torch, of functions
that work elementwise and of tables that are indexed. A mask without a score_mod is that of scaled_dot_product_attention and takes
its kernel; with a score_mod the scores are a tensor, as torch's are without its compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from sluice import _C
from sluice._C import Tensor
from sluice.nn import functional as F
from sluice.nn.attention.block_mask import BlockMask, and_masks, create_block_mask, create_mask, indices, noop_mask, or_masks

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask", "flex_attention",
           "noop_mask", "or_masks"]

_DEFAULT_SPARSE_BLOCK_SIZE = 128
FlexKernelOptions = dict  # of GPU kernels; none changes anything here
Score = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class AuxRequest(NamedTuple):
    """What flex_attention gives beside its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """Of each row of scores (B, H, L): the logarithm of the sum of its exponentials, and the largest."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def _check(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    shapes = f"query {list(query.shape)}, key {list(key.shape)}, value {list(value.shape)}"
    if not query.dim() == key.dim() == value.dim() == 4:
        raise _C.ValueError(f"flex_attention: {shapes}; each must have 4 dims (batch, heads, length, channels)")
    if query.shape[-1] != key.shape[-1] or key.shape[:3] != value.shape[:3] or key.shape[0] not in (1, query.shape[0]):
        raise _C.ValueError(f"flex_attention: {shapes}; query and key must have the same channels, key and value the same batch, heads "
                            f"and length, and their batch must be query's or 1")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise _C.ValueError(f"flex_attention: {shapes}; heads must be the same, or enable_gqa=True")
    if query.shape[1] % key.shape[1]:
        raise _C.ValueError(f"flex_attention: {shapes}; query's heads must be a multiple of key's")


def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: Score | None = None, block_mask: BlockMask | None = None,
                   scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False,
                   kernel_options: FlexKernelOptions | None = None, *, return_aux: AuxRequest | None = None) -> Any:
    """softmax(score_mod(query key^T scale)) value over the scores that block_mask leaves; a row with none left gives zeros.

    query: (B, H, L, E), key: (B or 1, Hkv, S, E), value: (B or 1, Hkv, S, Ev); scale: 1 / sqrt(E) by default; enable_gqa: Hkv may
    divide H. Gives (B, H, L, Ev); with return_lse also the logarithms of the rows' sums (B, H, L), in float32 at least; with return_aux
    an AuxOutput of what it asks for. Errors: ValueError where sizes do not fit, or block_mask is of other lengths.
    """
    _check(query, key, value, enable_gqa)
    if return_lse and return_aux is not None:
        raise _C.ValueError("flex_attention: return_lse and return_aux; one of them must be left out")
    shape = (*query.shape[:3], key.shape[2])
    if block_mask is not None and tuple(block_mask.seq_lengths) != shape[2:]:
        raise _C.ValueError(f"flex_attention: block_mask is of {block_mask.seq_lengths[0]} queries and {block_mask.seq_lengths[1]} keys; there "
                            f"are {shape[2]} and {shape[3]}")
    at = indices(*shape, device=query.device)
    mask = None if block_mask is None else block_mask.allowed(*at)
    if score_mod is None and not return_lse and return_aux is None:
        key, value = (t.expand(shape[0], -1, -1, -1) for t in (key, value))
        if mask is not None:
            mask = mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape)).expand(-1, -1, *shape[2:])
        return F.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=enable_gqa)
    key, value = (t.repeat_interleave(shape[1] // t.shape[1], 1) for t in (key, value))
    precise = _C.float64 if query.dtype == _C.float64 else _C.float32
    scores = (query @ key.transpose(-1, -2)).to(precise) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, *at).to(precise)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    most = scores.amax(-1, keepdim=True)
    weights = (scores - most.detach().masked_fill(most == -math.inf, 0)).exp()
    total = weights.sum(-1, keepdim=True)
    result = ((weights / total.masked_fill(total == 0, 1)).to(value.dtype) @ value).to(query.dtype)
    lse = scores.logsumexp(-1)
    if return_lse:
        return result, lse
    if return_aux is None:
        return result
    return result, AuxOutput(lse if return_aux.lse else None, most.squeeze(-1) if return_aux.max_scores else None)
