"""Named dims: sizes of inputs that differ from call to call."""

from __future__ import annotations

from numbers import Integral
from typing import Sequence

from sluice import _C


class Dim:
    """A named size of a graph's inputs, from `min` to `max`; see `GraphConfig.set_dims`. For results of a host function it
    means any size up to `max`, and nothing else said here counts; see `host_function`.

    buckets: the sizes for which plans are made, ascending, the last one `max`. By default powers of two and `max`; of an
        exact dim all sizes.
    fit: what becomes of a call of another size. "pad": its inputs are filled up with zeros to the next bucket and its
        results cut; right where every row of the results depends on the same row of the inputs alone. "split": it is made
        of several calls, the longest first, whose results are joined. "exact": it is refused.
    exact_after: a size that has no plan of its own gets one, made in the background (build() is traced by the call), when
        it is called for the so-many-th time. 0: never.
    """

    name: str
    min: int
    max: int
    buckets: tuple[int, ...]
    fit: str
    exact_after: int

    def __init__(self, name: str, max: int, min: int = 1, buckets: Sequence[int] | None = None, fit: str = "pad",
                 exact_after: int = 0) -> None:
        if buckets is None and fit == "exact":
            buckets = range(min, max + 1)
        elif buckets is None and 1 <= min <= max:
            buckets = _C.powers_of_two(min, max)
        self.name, self.min, self.max, self.fit = name, int(min), int(max), fit
        self.exact_after = exact_after
        if not isinstance(exact_after, Integral) or exact_after < 0 or (exact_after and fit == "exact"):
            raise _C.ValueError(f"dim '{name}': exact_after is {exact_after!r}; must be 0, or a positive int where fit is 'pad' or "
                                "'split'")
        self.buckets = tuple(map(int, buckets or ()))
        _C.check_dim(name, self.min, self.max, fit, list(self.buckets))

    def __repr__(self) -> str:
        return f"Dim({self.name!r}, max={self.max}, min={self.min}, buckets={list(self.buckets)}, fit={self.fit!r})"
