"""Histograms of values and of points: torch.histogram, torch.histogramdd."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._base.arguments import typed


class _Histogram(tuple):
    """torch.return_types.histogram and histogramdd: (hist, bin_edges)."""

    __slots__ = ()

    def __new__(cls, hist, bin_edges):
        return tuple.__new__(cls, (hist, bin_edges))

    def __getnewargs__(self):
        return tuple(self)

    hist = property(lambda self: self[0])
    bin_edges = property(lambda self: self[1])


def _edges(name: str, x: Tensor, bins: int, given: Any, where: str = "") -> Tensor:
    """Edges of `bins` equal bins over the given range, or over that of the values (n,)."""
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins}{where}")
    low, high = given if given is not None else (x.amin().item(), x.amax().item()) if x.numel() else (0.0, 1.0)
    if low > high:
        raise RuntimeError(f"{name}: min should not exceed max, but got min: {low} max: {high}{where}")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"{name}: dimension {where[-1:] or 0}'s range [{low}, {high}] is not finite")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return fn.linspace(float(low), float(high), bins + 1, _C.float64, x._device).to(x.dtype)


def _places(x: Tensor, edges: Tensor) -> tuple:
    """Which bin each value (n,) is in, and whether it is in one; the last bin has both of its edges."""
    count = edges.numel() - 1
    at = fn.searchsorted(edges, x.contiguous(), right=True) - 1
    at = fn.where(x == edges[-1], count - 1, at)
    inside = (at >= 0) & (at < count) & (x == x)
    return fn.where(inside, at, 0), inside


@typed(input="Tensor", bins="int|Tensor", range="numbers|None", weight="Tensor|None", density="bool")
def histogram(input: Tensor, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    """How many elements, or how much weight, each bin has, and the edges; the last bin has both. torch.histogram."""
    x = input.reshape(-1)
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"histogram: not implemented for {x.dtype}; cast it to floats")
    if range is not None and len(range) != 2:
        raise RuntimeError(f"torch.histogram: range should have 2 elements, but got {len(range)}")
    edges = bins if isinstance(bins, Tensor) else _edges("torch.histogram()", x, bins, range)
    at, inside = _places(x, edges)
    weights = fn.where(inside, 1 if weight is None else weight.reshape(-1), 0).to(x.dtype)
    totals = fn.index_add(x.new_zeros(edges.numel() - 1), 0, at, weights)
    if density:
        totals = totals / totals.sum() / edges.diff()
    return _Histogram(totals, edges)


@typed(input="Tensor", bins="int|ints|tensors", range="numbers|None", weight="Tensor|None", density="bool")
def histogramdd(input: Tensor, bins: Any, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    """How many points (..., d), or how much weight (...), each of the bins has, (bins of dim 0, ...), and the edges of each dim.

    bins: how many of each dim, or of all, or a list of edges. range: (low, high) of each dim in a row. torch.histogramdd.
    """
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f"histogramdd: not implemented for {input.dtype}; cast it to floats")
    if input.ndim < 2:
        raise RuntimeError(f"torch.histogramdd: input tensor should have at least 2 dimensions; got {input.ndim}")
    d = input._shape[-1]
    x = input.reshape(math.prod(input._shape[:-1]), d)
    if weight is not None and (weight._shape or (1,)) != input._shape[:-1]:  # one number is a list of one
        raise RuntimeError("torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
                           "excluding "
                           f"its innermost dimension, but got input with shape {list(input._shape)} and weight with shape "
                           f"{list(weight._shape)}")
    bins = [bins] * d if isinstance(bins, Integral) else list(bins)
    listed = bool(bins) and isinstance(bins[0], Tensor)
    if len(bins) != d and listed:
        raise RuntimeError(f"torch.histogramdd: expected {d} sequences of bin edges for a {d}-dimensional histogram but got "
                           f"{len(bins)}")
    if len(bins) != d:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input: got "
                           f"{len(bins)} and {d}")
    if range is not None and len(range) != 2 * d:
        raise RuntimeError(f"torch.histogramdd: for a {d}-dimensional histogram range should have {2 * d} elements, but got "
                           f"{len(range)}")
    edges = bins if listed else [
        _edges("torch.histogramdd", x[:, i], n, None if range is None else (range[2 * i], range[2 * i + 1]),
               f" for dimension {i}")
        for i, n in enumerate(bins)]
    place, inside = 0, True
    for i, e in enumerate(edges):
        at, within = _places(x[:, i], e)
        place, inside = place * (e.numel() - 1) + at, within & inside
    shape = tuple(e.numel() - 1 for e in edges)
    weights = fn.where(inside, 1 if weight is None else weight.reshape(-1), 0).to(x.dtype)
    totals = fn.index_add(x.new_zeros(math.prod(shape)), 0, fn.where(inside, place, 0), weights).reshape(shape)
    if density:
        totals = totals / totals.sum()
        for i, e in enumerate(edges):
            totals = totals / e.diff().reshape([-1 if i == j else 1 for j, _ in enumerate(shape)])
    return _Histogram(totals, tuple(edges))
