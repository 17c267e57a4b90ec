"""How a logical tensor lies on the devices of a placement: split along a dim, broadcast, or as a partial sum."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C


class sbp:
    """One of split(dim), broadcast, partial_sum. Compares by value."""

    __slots__ = ("kind", "dim")

    def __init__(self, kind: str, dim: int | None = None) -> None:
        self.kind, self.dim = kind, dim

    def __call__(self) -> Any:
        return self  # sbp.broadcast() is sbp.broadcast

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, sbp) and (self.kind, self.dim) == (other.kind, other.dim)

    def __hash__(self) -> int:
        return hash((self.kind, self.dim))

    def __repr__(self) -> str:
        return f"sluice.sbp.{self.kind}" + ("" if self.dim is None else f"(dim={self.dim})")

    def text(self, ndim: int) -> str:
        """As graphs print it; a negative dim counts from the end of a tensor of `ndim` dims."""
        if self.kind != "split":
            return {"broadcast": "B", "partial_sum": "P"}[self.kind]
        if not -ndim <= self.dim < ndim:
            raise IndexError(f"sbp: split(dim={self.dim}) of a tensor of {ndim} dims; dim must be in [{-ndim}, {ndim})")
        return f"S({self.dim % ndim})"


def split(dim: int) -> sbp:
    """Each device holds a part of `dim`, the first ones one element more where it does not divide evenly."""
    if not isinstance(dim, Integral) or isinstance(dim, bool):
        raise TypeError(f"sbp.split: dim is {dim!r}; must be an int")
    return sbp("split", int(dim))


#: Each device holds all of it.
broadcast = sbp("broadcast")
#: What the devices hold adds up to it.
partial_sum = sbp("partial_sum")


def each(value: Any, axes: Any, where: Any) -> tuple[sbp, ...]:
    """One for each of the `axes` of a placement, which are its names: of an sbp, or broadcast alone for all of them, or a
    sequence, or a dict by the axes' names, in which what is left out is broadcast. `where` is the placement, for errors."""
    if isinstance(value, dict):
        unknown = [name for name in value if name is None or name not in axes]
        if unknown:
            known = ", ".join(repr(name) for name in axes if name) or "none has a name"
            raise _C.ValueError(f"sbp: {where} has no axis {unknown[0]!r}; its axes: {known}")
        value = tuple(value.get(name, broadcast) for name in axes)
    if isinstance(value, sbp) and (len(axes) == 1 or value == broadcast):
        value = (value,) * len(axes)
    if isinstance(value, (list, tuple)) and len(value) == len(axes) and all(isinstance(one, sbp) for one in value):
        return tuple(value)
    if len(axes) == 1:
        raise TypeError(f"sbp: got {value!r}; must be sluice.sbp.split(dim), broadcast or partial_sum, one for the one axis of "
                        "a placement")
    raise TypeError(f"sbp: got {value!r}; must be {len(axes)} of sluice.sbp.split(dim), broadcast and partial_sum, one for each "
                    f"axis of {where}, or a dict by their names")


def text(value: tuple[sbp, ...], ndim: int) -> str:
    """As graphs print it, of a tensor of `ndim` dims: "S(0),B"."""
    return ",".join(one.text(ndim) for one in value)


def parse(text: str) -> tuple[sbp, ...]:
    """Parses the result of text()."""
    return tuple(split(int(one[2:-1])) if one.startswith("S") else broadcast if one == "B" else partial_sum
                 for one in text.split(","))
