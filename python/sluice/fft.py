"""torch.fft: discrete Fourier transforms of real and complex tensors, of any length."""

from typing import Any

from sluice._C import Tensor as Tensor
from sluice._C import fn as _fn
from sluice._C import get_default_dtype as _default
from sluice._C import RuntimeError as _RuntimeError
from sluice._C.fft import *  # noqa: F403
from sluice._tensor.creation import _check_options, _finish


def _frequencies(name: str, n: int, first: int, count: int, d: float, dtype: Any, device: Any, requires_grad: bool, out: Any,
                 options: dict) -> Tensor:
    _check_options(name, options)
    dtype = dtype or (_default() if out is None else out.dtype)
    if not dtype.is_floating_point and not dtype.is_complex:
        raise _RuntimeError(f"{name}: requires a floating point or complex dtype, but got {dtype}")
    numbers = _fn.arange(0.0, float(count), 1.0, dtype.to_real())
    if first < count:  # negative frequencies come last
        numbers = _fn.where(numbers < first, numbers, numbers - n)
    return _finish((numbers * (1.0 / (n * d))).to(dtype), device, requires_grad, out)


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None,
            **options: Any) -> Tensor:
    """The frequencies of what fft() gives, for n samples `d` apart; torch.fft.fftfreq."""
    if n == 0:
        return _finish(_fn.full((0,), 0.0, dtype or _default()), device, requires_grad, out)
    return _frequencies("fftfreq", n, (n + 1) // 2, n, d, dtype, device, requires_grad, out, options)


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None,
             **options: Any) -> Tensor:
    """The frequencies of what rfft() gives, for n samples `d` apart; torch.fft.rfftfreq."""
    if n == 0:
        return _finish(_fn.full((1,), float("nan"), dtype or _default()), device, requires_grad, out)
    return _frequencies("rfftfreq", n, n // 2 + 1, n // 2 + 1, d, dtype, device, requires_grad, out, options)
