"""Formulas of a step that is a number, or a traced float64 scalar."""

from __future__ import annotations

import math
from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import tensor


def scalar(x: Any) -> Tensor:
    return x.to(_C.float64) if isinstance(x, Tensor) else tensor(float(x), dtype=_C.float64)


def choose(condition: Any, then: Any, otherwise: Any) -> Any:
    """One of two values, which may be functions without arguments: of numbers only the one that is wanted is called."""
    if not isinstance(condition, Tensor):
        chosen = then if condition else otherwise
        return chosen() if callable(chosen) else chosen
    a, b = (v() if callable(v) else v for v in (then, otherwise))
    return a if a is b else fn.where(condition, scalar(a), scalar(b))


def either(a: Any, b: Any) -> Any:
    return a | b if isinstance(a, Tensor) or isinstance(b, Tensor) else a or b


def floor(x: Any) -> Any:
    return x.floor() if isinstance(x, Tensor) else math.floor(x)


def rest(x: Any, n: float) -> Any:
    """x modulo n."""
    return x - (x / n).floor() * n if isinstance(x, Tensor) else x % n


def cos(x: Any) -> Any:
    return x.cos() if isinstance(x, Tensor) else math.cos(x)


def tanh(x: Any) -> Any:
    return x.tanh() if isinstance(x, Tensor) else math.tanh(x)


def log(x: Any) -> Any:
    return x.log() if isinstance(x, Tensor) else math.log(x)


def at_most(x: Any, n: float) -> Any:
    return x.clamp(max=n) if isinstance(x, Tensor) else min(x, n)


def at_least(x: Any, n: float) -> Any:
    return x.clamp(min=n) if isinstance(x, Tensor) else max(x, n)


def largest(x: Any, y: Any) -> Any:
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        return fn.maximum(scalar(x), scalar(y))
    return max(x, y)


def cosine(start: Any, end: Any, done: Any) -> Any:
    """From `start` to `end` along half a cosine."""
    return end + (start - end) / 2.0 * (cos(done * math.pi) + 1)


def linear(start: Any, end: Any, done: Any) -> Any:
    return (end - start) * done + start


ANNEALING = {"cos": cosine, "linear": linear}


def anneal_of(name: Any) -> Any:
    if name not in ANNEALING:
        raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {name}")
    return ANNEALING[name]
