"""Convolutions in 1, 2 and 3 dimensions, and their transposes."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from sluice._C import Tensor
from sluice._tensor.creation import empty
from sluice.nn import functional as F
from sluice.nn import init
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter


def tuple_of(value: Any, n: int) -> Any:
    """`value` as an n-tuple: an int is repeated."""
    if isinstance(value, Integral):
        return (int(value),) * n
    value = tuple(value)
    if len(value) != n:
        raise ValueError(f"expected an int or {n} ints: got {value}")
    return value


class _ConvNd(Module):
    dims = 0
    function: Any = None  # of sluice.nn.functional
    transposed = False

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", output_padding: Any = 0, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError(f"groups must be a positive integer: got {groups}")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name} must be divisible by groups: got {channels} and {groups}")
        modes = ("zeros", "reflect", "replicate", "circular")
        if padding_mode not in modes:
            raise ValueError(f"padding_mode must be one of {set(modes)}, but got padding_mode={padding_mode!r}")
        if self.transposed and padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {self._get_name()}: got {padding_mode!r}')
        n = self.dims
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.dilation = (tuple_of(v, n) for v in (kernel_size, stride, dilation))
        self.output_padding = tuple_of(output_padding, n)
        self.groups, self.padding_mode = groups, padding_mode
        if isinstance(padding, str):
            if padding not in ("valid", "same"):
                raise ValueError(f"padding is {padding!r}; must be ints, 'valid' or 'same'")
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        self.padding = padding if isinstance(padding, str) else tuple_of(padding, n)
        shape = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty(*shape, *self.kernel_size, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        init.bias_like_fan_in_(self.bias, self.weight)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        n = self.dims
        for name, default in (("padding", (0,) * n), ("dilation", (1,) * n), ("output_padding", (0,) * n), ("groups", 1)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class _Conv(_ConvNd):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
                         device=device, dtype=dtype)

    def forward(self, input: Any) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._sides(), self.padding_mode), 0
        return self.function(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def _sides(self) -> list[int]:
        """The padding as F.pad takes it: the last dim first, and what is uneven at the end."""
        sides: list[int] = []
        for i in reversed(range(self.dims)):
            total = self.dilation[i] * (self.kernel_size[i] - 1) if self.padding == "same" else 0
            if isinstance(self.padding, str):
                sides += [total // 2, total - total // 2]
            else:
                sides += [self.padding[i]] * 2
        return sides


class Conv1d(_Conv):
    dims, function = 1, F.conv1d


class Conv2d(_Conv):
    dims, function = 2, F.conv2d


class Conv3d(_Conv):
    dims, function = 3, F.conv3d


class _ConvTransposeNd(_ConvNd):
    transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 output_padding: Any = 0, groups: int = 1, bias: bool = True,
                 dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
                         output_padding, device=device, dtype=dtype)

    def forward(self, input: Any, output_size: Any = None) -> Tensor:
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = self._output_padding_for(input, tuple(output_size)[-self.dims:])
        return self.function(input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups,
                             self.dilation)

    def _output_padding_for(self, input: Any, size: Any) -> Any:
        least = [(input.shape[-self.dims + i] - 1) * self.stride[i] - 2 * self.padding[i]
                 + self.dilation[i] * (self.kernel_size[i] - 1) + 1 for i in range(self.dims)]
        extra = tuple(s - m for s, m in zip(size, least))
        if any(not 0 <= e < max(s, d) for e, s, d in zip(extra, self.stride, self.dilation)):
            raise ValueError(f"{self._get_name()}: output_size {size} is not reachable; the least is {tuple(least)}")
        return extra


class ConvTranspose1d(_ConvTransposeNd):
    dims, function = 1, F.conv_transpose1d


class ConvTranspose2d(_ConvTransposeNd):
    dims, function = 2, F.conv_transpose2d


class ConvTranspose3d(_ConvTransposeNd):
    dims, function = 3, F.conv_transpose3d
