"""Padding of the last one, two or three dims."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice.nn import functional as F
from sluice.nn.modules.conv import tuple_of
from sluice.nn.modules.module import Module


class _Pad(Module):
    dims, mode = 0, "constant"

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = tuple_of(padding, 2 * self.dims)

    def forward(self, input: Any) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Any) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    dims = 1


class ConstantPad2d(_ConstantPad):
    dims = 2


class ConstantPad3d(_ConstantPad):
    dims = 3


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad):
    dims = 1


class ZeroPad2d(_ZeroPad):
    dims = 2


class ZeroPad3d(_ZeroPad):
    dims = 3


class ReflectionPad1d(_Pad):
    dims, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    dims, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    dims, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    dims, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    dims, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    dims, mode = 3, "replicate"


class CircularPad1d(_Pad):
    dims, mode = 1, "circular"


class CircularPad2d(_Pad):
    dims, mode = 2, "circular"


class CircularPad3d(_Pad):
    dims, mode = 3, "circular"
