"""Windows of signal processing, as torch has them."""

from __future__ import annotations

import functools
import math
from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._tensor.creation import _finish


def _window(name: str, length: int, periodic: bool, shape: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """shape(x) at evenly spaced x from 0 to 1; of a periodic window without the last, which is the first of the next."""
    dtype = dtype or _C.get_default_dtype()
    if length < 0:
        raise RuntimeError(f"{name}: requires non-negative window_length, got window_length={length}")
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name}: expects floating point dtypes, got: {dtype}")
    if length < 2:
        return _finish(fn.full((length,), 1.0, dtype), device, requires_grad)
    steps = length if periodic else length - 1
    x = fn.arange(0.0, float(length), 1.0, _C.float64) / steps
    return _finish(shape(x).to(dtype), device, requires_grad)


def _in_order(function: Any) -> Any:
    """As torch's forms, which leave out the last arguments only: one that is named needs those before it."""
    names = function.__code__.co_varnames[:function.__code__.co_argcount]

    @functools.wraps(function)
    def call(*args, **keywords):
        missing = [name for name in names[len(args):] if name not in keywords]
        early = [name for name in keywords if name in names and missing and names.index(name) > names.index(missing[0])]
        if early:
            raise TypeError(f"{function.__name__}(): received an invalid combination of arguments: {early[0]} without "
                            f"{missing[0]}; must come with it")
        return function(*args, **keywords)

    return call


def _cosines(x: Tensor, *weights: float) -> Tensor:
    """The sum of weights[k] * cos(2 pi k x)."""
    return sum((fn.cos(x * (2 * math.pi * k)) * w for k, w in enumerate(weights) if k), fn.full(x._shape, weights[0], _C.float64))


def hann_window(window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
                requires_grad: bool = False) -> Tensor:
    """0.5 - 0.5 cos; torch.hann_window."""
    return _window("hann_window", window_length, periodic, lambda x: _cosines(x, 0.5, -0.5), dtype, device, requires_grad)


@_in_order
def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None,
                   layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """alpha - beta cos; torch.hamming_window."""
    return _window("hamming_window", window_length, periodic, lambda x: _cosines(x, alpha, -beta), dtype, device, requires_grad)


def blackman_window(window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
                    requires_grad: bool = False) -> Tensor:
    """0.42 - 0.5 cos + 0.08 cos of twice the angle; torch.blackman_window."""
    return _window("blackman_window", window_length, periodic, lambda x: _cosines(x, 0.42, -0.5, 0.08), dtype, device, requires_grad)


def bartlett_window(window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
                    requires_grad: bool = False) -> Tensor:
    """A triangle from 0 over 1 to 0; torch.bartlett_window."""
    return _window("bartlett_window", window_length, periodic, lambda x: 1 - (2 * x - 1).abs(), dtype, device, requires_grad)


@_in_order
def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, layout: Any = None,
                  device: Any = None, requires_grad: bool = False) -> Tensor:
    """I0(beta sqrt(1 - x^2)) / I0(beta) for x from -1 to 1; torch.kaiser_window."""
    def shape(x):
        return fn.i0(beta * fn.sqrt(fn.clamp(1 - (2 * x - 1) ** 2, 0.0))) / fn.i0(fn.full((), float(beta), _C.float64))

    return _window("kaiser_window", window_length, periodic, shape, dtype, device, requires_grad)
