"""Activations, by the functions that they call."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice._tensor.creation import empty
from sluice.nn import functional as F
from sluice.nn import init
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter


class _Activation(Module):
    """Calls `function` of the input and of what the constructor was given, which are attributes."""

    function: Any = None  # of sluice.nn.functional
    bare = False  # whether the repr has values without names

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        if arguments and type(self).__init__ is _Activation.__init__:  # of one that takes none
            raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument {next(iter(arguments))!r}")
        self.__dict__.update(arguments, _arguments=tuple(arguments))

    def forward(self, input: Any) -> Tensor:
        return type(self).function(input, **{name: self.__dict__[name] for name in self._arguments})

    def extra_repr(self) -> str:
        shown = [name for name in self._arguments if name != "inplace" or self.inplace]
        return ", ".join(f"{getattr(self, n)}" if self.bare else f"{n}={getattr(self, n)!r}" for n in shown)


class ReLU(_Activation):
    """max(x, 0)"""

    function = staticmethod(F.relu)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class ReLU6(_Activation):
    """min(max(x, 0), 6)"""

    min_val, max_val = 0.0, 6.0
    function = staticmethod(F.relu6)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class SELU(_Activation):
    """1.0507 * (x if x > 0 else 1.6733 * (exp(x) - 1))"""

    function = staticmethod(F.selu)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class SiLU(_Activation):
    """x sigmoid(x)"""

    function = staticmethod(F.silu)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class Mish(_Activation):
    """x tanh(softplus(x))"""

    function = staticmethod(F.mish)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class Hardsigmoid(_Activation):
    """clamp(x / 6 + 1 / 2, 0, 1)"""

    function = staticmethod(F.hardsigmoid)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)

    def extra_repr(self) -> str:
        return ""


class Hardswish(Hardsigmoid):
    """x hardsigmoid(x)"""

    function = staticmethod(F.hardswish)


class GELU(_Activation):
    """x Phi(x), approximate: "none" or "tanh" """

    function = staticmethod(F.gelu)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class Tanh(_Activation):
    """tanh(x)"""

    function = staticmethod(F.tanh)


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))"""

    function = staticmethod(F.sigmoid)


class LogSigmoid(_Activation):
    """log(sigmoid(x))"""

    function = staticmethod(F.logsigmoid)


class Softsign(_Activation):
    """x / (1 + |x|)"""

    function = staticmethod(F.softsign)


class Tanhshrink(_Activation):
    """x - tanh(x)"""

    function = staticmethod(F.tanhshrink)


class Softplus(_Activation):
    """log(1 + exp(beta x)) / beta"""

    function = staticmethod(F.softplus)

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class ELU(_Activation):
    """x if x > 0 else alpha (exp(x) - 1)"""

    function = staticmethod(F.elu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class CELU(_Activation):
    """x if x > 0 else alpha (exp(x / alpha) - 1)"""

    function = staticmethod(F.celu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class LeakyReLU(_Activation):
    """x if x > 0 else negative_slope x"""

    function = staticmethod(F.leaky_relu)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class Hardtanh(_Activation):
    """x within [min_val, max_val]"""

    function = staticmethod(F.hardtanh)

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, min_value: Any = None,
                 max_value: Any = None) -> None:
        min_val, max_val = (new if old is None else old for new, old in ((min_val, min_value), (max_val, max_value)))
        super().__init__(min_val=min_val, max_val=max_val, inplace=inplace)
        if not max_val > min_val:
            raise AssertionError(f"Hardtanh: max_val must be greater than min_val: got {min_val} and {max_val}")


class Threshold(_Activation):
    """x if x > threshold else value"""

    function = staticmethod(F.threshold)

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class Hardshrink(_Activation):
    """0 within [-lambd, lambd], else x"""

    function, bare = staticmethod(F.hardshrink), True

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Softshrink(_Activation):
    """0 within [-lambd, lambd], else x moved towards 0 by lambd"""

    function, bare = staticmethod(F.softshrink), True

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class GLU(_Activation):
    """The first half of a dim times the sigmoid of the second"""

    function = staticmethod(F.glu)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class Softmax(_Activation):
    """exp(x) normalised along dim"""

    function = staticmethod(F.softmax)

    def __init__(self, dim: Any = None) -> None:
        super().__init__(dim=dim)


class Softmin(_Activation):
    """softmax(-x)"""

    function = staticmethod(F.softmin)

    def __init__(self, dim: Any = None) -> None:
        super().__init__(dim=dim)


class LogSoftmax(_Activation):
    """log(softmax(x))"""

    function = staticmethod(F.log_softmax)

    def __init__(self, dim: Any = None) -> None:
        super().__init__(dim=dim)


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W) or (C, H, W)"""

    def forward(self, input: Any) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


class RReLU(Module):
    """x if x > 0, else x times a slope of [lower, upper): random while training, else their mean"""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Any) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """x if x > 0 else weight x; weight has an entry, or one per channel"""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.constant_(self.weight, self.init)

    def forward(self, input: Any) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class QuickGELU(_Activation):
    """x sigmoid(1.702 x); OneFlow's"""

    function = staticmethod(F.quick_gelu)


class SquareReLU(_Activation):
    """relu(x)^2; OneFlow's"""

    function = staticmethod(F.square_relu)
