"""Helpers that distributions share: broadcasting of parameters, and probabilities as logits."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import tensor
from sluice._base.numbers import numpy as lazy_numpy
from sluice._base.grad_mode import enable_grad

_BFLOAT16 = {"eps": 2.0**-7, "tiny": 2.0**-126, "max": (2 - 2.0**-7) * 2.0**127}


def limit(dtype: Any, name: str) -> float:
    """eps, tiny or max of a floating dtype."""
    return _BFLOAT16[name] if dtype is _C.bfloat16 else float(getattr(lazy_numpy().finfo(dtype.name), name))


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the dtype of the tensors, or the default."""
    for v in values:
        if not isinstance(v, (Tensor, Integral, float)):
            raise ValueError(f"Input arguments must all be instances of Number, torch.Tensor: got {type(v).__name__}")
    like = next((v for v in values if isinstance(v, Tensor)), None)
    dtype = like.dtype if like is not None and like.dtype.is_floating_point else _C.get_default_dtype()
    device = None if like is None or like._traced else like._device
    tensors = [v if isinstance(v, Tensor) else tensor(v, dtype=dtype, device=device) for v in values]
    return tuple(fn.broadcast_tensors(*tensors)) if len(tensors) > 1 else tuple(tensors)


def lazy_property(compute: Any) -> Any:
    """A property that is computed when first asked for."""
    return _Lazy(compute)


class _Lazy:
    def __init__(self, compute: Any) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self._compute(instance)
        instance.__dict__[self._name] = value  # found before this descriptor from now on
        return value


def clamp_probs(probs: Tensor) -> Tensor:
    eps = limit(probs.dtype, "eps")
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """log(p / (1 - p)) of binary ones, else log(p), of probabilities kept off 0 and 1."""
    probs = clamp_probs(probs)
    return probs.log() - (-probs).log1p() if is_binary else probs.log()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def one_of(where: str, probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ValueError(f"{where}: Either `probs` or `logits` must be specified, but not both.")


def sum_rightmost(value: Tensor, dims: int) -> Tensor:
    """Without the last `dims` dims, which are summed."""
    return value if dims == 0 else value.reshape((*value.shape[:value.ndim - dims], -1)).sum(-1)


def knowable(t: Any) -> bool:
    """Its content can be looked at: no graph computes it."""
    return not (isinstance(t, Tensor) and _C.touches_graph(t))


def check_all(valid: Any) -> bool:
    """`valid`, a bool tensor, is true everywhere, as far as it can be looked at."""
    return not knowable(valid) or bool(valid.all())
