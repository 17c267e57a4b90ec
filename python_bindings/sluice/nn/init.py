"""In-place initialisation with torch's algorithms, from the default generator."""

from __future__ import annotations

import math
from typing import Any

import sluice


def _no_grad(fn: Any) -> Any:
    import functools

    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        with sluice.no_grad():
            return fn(*args, **kwargs)

    return wrapped


@_no_grad
def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    return tensor.uniform_(a, b, generator=generator)


@_no_grad
def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    return tensor.normal_(mean, std, generator=generator)


@_no_grad
def constant_(tensor: Any, val: Any) -> Any:
    return tensor.fill_(val)


def ones_(tensor: Any) -> Any:
    return constant_(tensor, 1.0)


def zeros_(tensor: Any) -> Any:
    return constant_(tensor, 0.0)


@_no_grad
def eye_(tensor: Any) -> Any:
    if tensor.dim() != 2:
        raise ValueError(f"eye_: tensor must have 2 dims: got {tuple(tensor.shape)}")
    return tensor.copy_(sluice.eye(*tensor.shape, dtype=tensor.dtype))


@_no_grad
def trunc_normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, a: Any = -2.0, b: float = 2.0,
                  generator: Any = None) -> Any:
    """Normal values cut to [a, b], by the inverse of the distribution function."""
    def cdf(x):
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    low, high = cdf((a - mean) / std), cdf((b - mean) / std)
    tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
    tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean)
    return tensor.clamp_(a, b)


def calculate_gain(nonlinearity: Any, param: Any = None) -> Any:
    """The recommended gain: torch.nn.init.calculate_gain."""
    if nonlinearity in ("linear", "sigmoid", *(f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3))):
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ValueError(f"calculate_gain: negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"calculate_gain: unsupported nonlinearity {nonlinearity}")


def _calculate_fan_in_and_fan_out(tensor: Any) -> Any:
    if tensor.dim() < 2:
        raise ValueError("fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    receptive = math.prod(tensor.shape[2:])
    return tensor.shape[1] * receptive, tensor.shape[0] * receptive


def _fan(tensor: Any, mode: Any) -> Any:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    a = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -a, a, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def kaiming_uniform_(tensor: Any, a: Any = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                     generator: Any = None) -> Any:
    if 0 in tensor.shape:
        return tensor
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Any, a: Any = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                    generator: Any = None) -> Any:
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


def bias_like_fan_in_(bias: Any, weight: Any) -> None:
    """How linear and convolution layers draw their bias: uniform in +-1 / sqrt(fan_in of the weight)."""
    if bias is not None:
        fan_in, _ = _calculate_fan_in_and_fan_out(weight)
        if fan_in > 0:
            uniform_(bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))
