"""Dtypes and layouts that Sluice has no tensors of, by name: packages compare a tensor's with them and ask for their range."""

from __future__ import annotations

from typing import Any

from sluice._base.memory_format import contiguous_format, layout
from sluice._names.left_out import left_out
from sluice._tensor import dtypes


class NamedDtype:
    """A dtype by its name and facts. No tensor has it: where a dtype is asked for, it is refused. Each is of a class of its own,
    since such errors show the name of an argument's class: it says what to use instead."""

    is_complex = False

    def __init__(self, name: str, itemsize: int, is_floating_point: bool) -> None:
        self.name, self.itemsize, self.is_floating_point = name, itemsize, is_floating_point
        self.is_signed = is_floating_point and name != "float8_e8m0fnu"

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> Any:
        return named, (self.name, self.itemsize, self.is_floating_point)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedDtype) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def named(name: str, itemsize: int, is_floating_point: bool) -> NamedDtype:
    entry = left_out(name)
    text = f"{name}, which no tensor here has: {entry.instead if entry else 'use another dtype'}"
    return type(text, (NamedDtype,), {"__module__": "torch", "__hash__": NamedDtype.__hash__})(name, itemsize, is_floating_point)


# The largest and the least value, the step above 1, the least normal value, as their definitions say.
_FLOATS = {"float8_e8m0fnu": (2.0**127, 2.0**-127, 1.0, 2.0**-127)}


class finfo(dtypes.finfo):
    """sluice.finfo, and the range of a float of 8 bits that is a scale."""

    def __init__(self, type: Any = None) -> None:
        if not isinstance(type, NamedDtype):
            super().__init__(type)
            return
        if type.name not in _FLOATS:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type.name}'")
        self.max, self.min, self.eps, self.tiny = _FLOATS[type.name]
        self.bits, self.dtype, self.resolution, self.smallest_normal = 8, type.name, 1.0, self.tiny


class iinfo(dtypes.iinfo):
    """sluice.iinfo, and the range of unsigned integers of more bits."""

    def __init__(self, type: Any) -> None:
        if not isinstance(type, NamedDtype):
            super().__init__(type)
            return
        if type.is_floating_point:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type.name}'")
        self.bits, self.dtype, self.min, self.max = 8 * type.itemsize, type.name, 0, 2 ** (8 * type.itemsize) - 1


_NAMED = {**{name: named(name, 1, True) for name in (*_FLOATS, "float4_e2m1fn_x2")},
          **{f"uint{8 * size}": named(f"uint{8 * size}", size, False) for size in (2, 4, 8)}}
_LAYOUTS = {name: layout(name) for name in ("sparse_bsr", "sparse_bsc", "jagged")}
MEMBERS = {"torch": {**_NAMED, **_LAYOUTS, "finfo": finfo, "iinfo": iinfo, "legacy_contiguous_format": contiguous_format}}
