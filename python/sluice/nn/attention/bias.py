"""Masks of attention: torch.nn.attention.bias."""

from __future__ import annotations

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import ones

__all__ = ["causal_lower_right", "causal_upper_left"]


def _sizes(name: str, size: tuple) -> tuple[int, int]:
    if len(size) != 2:
        raise AssertionError(f"{name} only supports 2D tensors, got {len(size)} dims")
    return size


def causal_upper_left(*size: int) -> Tensor:
    """The bool mask (L, S) of is_causal=True: query i sees keys 0 to i."""
    rows, keys = _sizes("causal_upper_left", size)
    return ones(rows, keys, dtype=_C.bool).tril()


def causal_lower_right(*size: int) -> Tensor:
    """The bool mask (L, S) in which the last query sees all keys, and each one before it one key less."""
    rows, keys = _sizes("causal_lower_right", size)
    return ones(rows, keys, dtype=_C.bool).tril(keys - rows)
