"""In-place initialisation with torch's algorithms and draws, from the default generator or a given one."""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from numbers import Integral
from typing import Any, Callable, Iterator

from sluice import _C
from sluice._tensor import creation
from sluice._tensor.creation import empty, randperm
from sluice._base.numbers import numpy as lazy_numpy
from sluice._base.grad_mode import no_grad

_skipped = False


@contextlib.contextmanager
def skipped() -> Iterator[None]:
    """Inside, the functions of this module leave tensors as they are, and draw nothing."""
    global _skipped
    before, _skipped = _skipped, True
    try:
        yield
    finally:
        _skipped = before


def _initialiser(fn: Callable) -> Callable:
    @functools.wraps(fn)
    def wrapped(tensor, *args, **kwargs):
        if _skipped:
            return tensor
        with no_grad():
            return fn(tensor, *args, **kwargs)

    return wrapped


@_initialiser
def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """Uniform in [a, b)."""
    return tensor.uniform_(a, b, generator=generator)


@_initialiser
def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    """Normal with this mean and standard deviation."""
    return tensor.normal_(mean, std, generator=generator)


@_initialiser
def constant_(tensor: Any, val: float) -> Any:
    """Everywhere `val`."""
    return tensor.fill_(val)


def ones_(tensor: Any) -> Any:
    return constant_(tensor, 1.0)


def zeros_(tensor: Any) -> Any:
    return constant_(tensor, 0.0)


@_initialiser
def eye_(tensor: Any) -> Any:
    """The identity matrix."""
    if tensor.dim() != 2:
        raise _C.ValueError("eye_: Only tensors with 2 dimensions are supported")
    return tensor.copy_(creation.eye(*tensor.shape, dtype=tensor.dtype))


@_initialiser
def dirac_(tensor: Any, groups: int = 1) -> Any:
    """Weights of a convolution that passes channels on, as many as there are, in each group."""
    if tensor.dim() not in (3, 4, 5):
        raise _C.ValueError("dirac_: Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups != 0:
        raise _C.ValueError("dirac_: dim 0 must be divisible by groups")
    made = lazy_numpy().zeros(tensor.shape)
    outputs = tensor.shape[0] // groups
    middle = tuple(size // 2 for size in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(outputs, tensor.shape[1])):
            made[(group * outputs + channel, channel, *middle)] = 1
    return tensor.copy_(creation.tensor(made, dtype=tensor.dtype))


@_initialiser
def trunc_normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                  generator: Any = None) -> Any:
    """Normal values within [a, b], by rejection: of normal draws, or of uniform or exponential ones where few normal draws
    would do."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.",
                      stacklevel=3)
    if not (math.isfinite(mean) and math.isfinite(std) and std > 0 and a <= b):  # also of NaN
        raise RuntimeError(f"trunc_normal_: mean is {mean}, std {std}, a {a}, b {b}; mean and std must be finite, std > 0, a <= b")
    within = (math.erf((b - mean) / std / math.sqrt(2)) - math.erf((a - mean) / std / math.sqrt(2))) / 2
    peak = (min(max(mean, a), b) - mean) / std  # where the density is largest
    tail = abs(peak)
    rate = (tail + math.sqrt(tail * tail + 4)) / 2  # of the exponential distribution that is nearest to the tail

    def uniform():
        return empty(tensor.shape, dtype=tensor.dtype).uniform_(generator=generator)

    def draw():
        """Draws, and which of them count: never fewer than one of some ten."""
        if within > 0.3:
            drawn = empty(tensor.shape, dtype=tensor.dtype).normal_(mean, std, generator=generator)
            return drawn, (drawn >= a) & (drawn <= b)
        if tail * (b - a) / std > 3:  # from the nearer bound on (Robert, Simulation of truncated normal variables, 1995)
            beyond = -(1 - uniform()).log() / rate
            drawn = a + std * beyond if a > mean else b - std * beyond
            density = (beyond - 2 / (math.sqrt(tail * tail + 4) + tail)).square() * -0.5
            return drawn, (uniform().log() <= density) & (drawn >= a) & (drawn <= b)
        drawn = empty(tensor.shape, dtype=tensor.dtype).uniform_(a, b, generator=generator)
        density = ((drawn - mean) / std).square() * -0.5 + 0.5 * peak * peak
        return drawn, uniform().log() <= density

    result, fine = draw()
    while not fine.all():
        drawn, also = draw()
        result, fine = _C.fn.where(fine, result, drawn), fine | also
    return tensor.copy_(result)


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The recommended gain: torch.nn.init.calculate_gain."""
    if nonlinearity in ("linear", "sigmoid", *(f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3))):
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (Integral, float))):
            raise _C.ValueError(f"calculate_gain: negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise _C.ValueError(f"calculate_gain: Unsupported nonlinearity {nonlinearity}")


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise _C.ValueError("init: Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    receptive = math.prod(tensor.shape[2:])
    return tensor.shape[1] * receptive, tensor.shape[0] * receptive


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise _C.ValueError(f"init: Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Uniform in +-gain sqrt(6 / (fan_in + fan_out))."""
    a = math.sqrt(3.0) * gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -a, a, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Normal with standard deviation gain sqrt(2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _empty(tensor: Any) -> bool:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return True
    return False


def kaiming_uniform_(tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                     generator: Any = None) -> Any:
    """Uniform in +-gain sqrt(3 / fan)."""
    if _empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * (calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode)))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                    generator: Any = None) -> Any:
    """Normal with standard deviation gain / sqrt(fan)."""
    if _empty(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


@_initialiser
def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """Rows, or columns where there are fewer, that are orthonormal, times gain; dims after the first are one.

    The Q of a normal matrix's QR decomposition, made unique by a positive diagonal of R.
    """
    if tensor.dim() < 2:
        raise _C.ValueError("orthogonal_: Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    np = lazy_numpy()
    rows, cols = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = empty(rows, cols, dtype=tensor.dtype).normal_(0, 1, generator=generator)
    exact = (drawn if tensor.dtype is _C.float64 else drawn.float()).numpy()
    q, r = np.linalg.qr(exact.T if rows < cols else exact)
    q = q * np.sign(np.diag(r))
    return tensor.copy_(creation.tensor(np.ascontiguousarray(q.T if rows < cols else q)).reshape(tensor.shape)).mul_(gain)


@_initialiser
def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """Normal, with a share `sparsity` of every column zero."""
    if tensor.dim() != 2:
        raise _C.ValueError("sparse_: Only tensors with 2 dimensions are supported")
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    drawn = empty(rows, cols, dtype=tensor.dtype).normal_(0, std, generator=generator)
    keep = lazy_numpy().ones((rows, cols), dtype=bool)
    for col in range(cols):
        keep[randperm(rows)[:zeros].numpy(), col] = False
    return tensor.copy_(drawn.masked_fill(creation.tensor(~keep), 0))


def bias_like_fan_in_(bias: Any, weight: Any) -> None:
    """How linear and convolution layers draw their bias: uniform in +-1 / sqrt(fan_in of the weight)."""
    if bias is not None:
        fan_in, _ = _calculate_fan_in_and_fan_out(weight)
        if fan_in > 0:
            uniform_(bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))


def _deprecated(new: Callable) -> Callable:
    old = new.__name__[:-1]

    def deprecated(*args, **kwargs):
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{old}_`.", FutureWarning, stacklevel=2)
        return new(*args, **kwargs)

    deprecated.__name__, deprecated.__doc__ = old, f"{old}_(), by its old name."
    return deprecated


uniform, normal, constant, eye, dirac = map(_deprecated, (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal = map(_deprecated, (xavier_uniform_, xavier_normal_))
kaiming_uniform, kaiming_normal, orthogonal, sparse = map(_deprecated, (kaiming_uniform_, kaiming_normal_, orthogonal_, sparse_))


# OneFlow's.


def get_data_format(data_format: str) -> str:
    """"channels_first" of "NC...", "channels_last" of "N...C", else ""; oneflow.nn.init.get_data_format."""
    if not isinstance(data_format, str):
        raise TypeError(f"get_data_format: data_format is {type(data_format).__name__}; must be str")
    return "channels_first" if data_format.startswith("NC") else "channels_last" if data_format[:1] == "N" and data_format[-1:] == "C" else ""


def calc_fan(shape: Any, mode: str = "fan_in", data_format: str = "NCHW") -> float:
    """How many inputs ("fan_in") or outputs ("fan_out") an element of a weight of that shape meets, or their mean ("fan_avg").

    data_format: "NCHW" and the like for weights (out, in, ...), "NHWC" and the like for (out, ..., in). oneflow.nn.init.calc_fan.
    """
    if mode not in ("fan_in", "fan_out", "fan_avg"):
        raise _C.ValueError(f"calc_fan: mode is {mode!r}; must be 'fan_in', 'fan_out' or 'fan_avg'")
    shape = tuple(shape)
    if len(shape) < 2:
        raise _C.ValueError("init: Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    last = get_data_format(data_format) == "channels_last"
    field = math.prod(shape[1:-1] if last else shape[2:])
    fan_in, fan_out = (shape[-1] if last else shape[1]) * field, shape[0] * field
    return {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
