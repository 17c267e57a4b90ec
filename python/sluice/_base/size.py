"""Size: the tuple that Tensor.shape is."""

from __future__ import annotations

import math
from numbers import Integral
from operator import index
from typing import Any

from sluice import _C


class Size(tuple):
    """A tuple of dims, as torch.Size."""

    __slots__ = ()

    def numel(self) -> int:
        return math.prod(self)

    def __getitem__(self, index: int) -> Any:
        item = tuple.__getitem__(self, index)
        return Size(item) if isinstance(index, slice) else item

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, tuple(other)))

    def __repr__(self) -> str:
        return f"sluice.Size({list(map(int, self))})"


def sizes_of(args: Any) -> Any:
    """Sizes given one by one or as one sequence."""
    if len(args) == 1 and not isinstance(args[0], Integral) and hasattr(args[0], "__iter__"):
        args = args[0]
    sizes = tuple(index(a) for a in args)
    if sizes and max(sizes) >= 2**63:
        raise _C.ValueError(f"size: an int of {max(sizes).bit_length()} bits was given; must fit into 64 with its sign")
    return sizes
