"""Steps of gradient descent on 8-bit integers."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import fn
from sluice._tensor import creation

ROUNDINGS = ("nearest", "stochastic", "carry")
_LARGEST = 127  # weights are symmetric
_WORD = 0xffffffff
_PARTS = 256  # of a unit, which a carry counts


def _stirred(h: Any, shift: int) -> Any:
    return fn.bitwise_xor(h, fn.bitwise_right_shift(h, shift))


def noise(shape: Any, step: Any, seed: int) -> Any:
    """A number in [0, 1) for each element: a hash of its place and the step, the same on every machine and in any order.

    The hash is C. Wellons' lowbias32, in words of 32 bits. A place is the sum of a row's and a column's, so that no tensor of all
    places is kept.
    """
    rows, columns = shape[0], 1
    for size in shape[1:]:
        columns *= size
    begin = (creation.arange(rows, dtype=_C.int64) * columns).reshape(rows, *[1] * (len(shape) - 1))
    begin = begin * 0x9e3779b1 + (step * 0x85ebca77 + seed * 0x27d4eb2f)  # of the step, so that nobody computes all places now
    h = fn.bitwise_and(begin + creation.arange(columns, dtype=_C.int64).reshape(1, *shape[1:]) * 0x9e3779b1, _WORD)
    h = fn.bitwise_and(_stirred(h, 16) * 0x7feb352d, _WORD)
    h = fn.bitwise_and(_stirred(h, 15) * 0x846ca68b, _WORD)
    return fn.bitwise_right_shift(_stirred(h, 16), 8).to(_C.float32) * 2.0 ** -24


def int8_sgd(param: Any, grad: Any, lr: Any, step: Any, rounding: str = "stochastic", seed: int = 0) -> Any:
    """param - lr * grad as int8, brought into -127 to 127.

    rounding: "nearest", halves to even, by which steps below a half are lost; or "stochastic", up as often as the fraction says.
    """
    value = param.to(_C.float32) - grad * lr
    if rounding == "nearest":
        value = value.round()
    else:
        value = (value + noise(param.shape, step, seed)).floor()
    return fn.clamp(value, -_LARGEST, _LARGEST).to(_C.int8)


def int8_sgd_carry(param: Any, rest: Any, grad: Any, lr: Any) -> tuple[Any, Any]:
    """(param - lr * grad to the nearest int8 in -127 to 127, what that leaves), from param and what the last step left.

    rest: int8, in 256ths of a unit: steps too short for a whole unit add up.
    """
    value = param.to(_C.float32) + rest.to(_C.float32) * (1 / _PARTS) - grad * lr
    moved = fn.clamp(value.round(), -_LARGEST, _LARGEST)
    return moved.to(_C.int8), fn.clamp(((value - moved) * _PARTS).round(), -128, 127).to(_C.int8)
