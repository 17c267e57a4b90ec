"""Named dims: sizes of inputs that differ from call to call."""

from __future__ import annotations

from typing import Sequence

from sluice import _C


class Dim:
    """A named size of a graph's inputs, from `min` to `max`; see `GraphConfig.set_dims`.

    buckets: the sizes for which plans are made, ascending, the last one `max`. By default powers of two and `max`; of an
        exact dim all sizes.
    fit: what becomes of a call of another size. "pad": its inputs are filled up with zeros to the next bucket and its
        results cut; right where every row of the results depends on the same row of the inputs alone. "split": it is made
        of several calls, the longest first, whose results are joined. "exact": it is refused.
    """

    name: str
    min: int
    max: int
    buckets: tuple[int, ...]
    fit: str

    def __init__(self, name: str, max: int, min: int = 1, buckets: Sequence[int] | None = None, fit: str = "pad") -> None:
        if buckets is None and fit == "exact":
            buckets = range(min, max + 1)
        elif buckets is None and 1 <= min <= max:
            buckets = _C.powers_of_two(min, max)
        self.name, self.min, self.max, self.fit = name, int(min), int(max), fit
        self.buckets = tuple(map(int, buckets or ()))
        _C.check_dim(name, self.min, self.max, fit, list(self.buckets))

    def __repr__(self) -> str:
        return f"Dim({self.name!r}, max={self.max}, min={self.min}, buckets={list(self.buckets)}, fit={self.fit!r})"
