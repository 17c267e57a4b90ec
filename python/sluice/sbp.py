"""How a logical tensor lies on the devices of a placement: split along a dim, broadcast, or as a partial sum."""

from __future__ import annotations

from numbers import Integral
from typing import Any


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


def one(value: Any) -> sbp:
    """`value`, an sbp or a sequence of one."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, sbp):
        raise TypeError(f"sbp: got {value!r}; must be sluice.sbp.split(dim), broadcast or partial_sum, one for the one axis of "
                        "a placement")
    return value


def parse(text: str) -> sbp:
    """Parses the result of sbp.text()."""
    return split(int(text[2:-1])) if text.startswith("S") else broadcast if text == "B" else partial_sum
