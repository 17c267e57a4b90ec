"""A failing case made smaller, as long as it fails in the same way."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Iterator

import numpy as np

from sluice.testing.autotest.arrays import Array, Case


def shrunk(case: Case, fails: Callable[[Case], bool], tries: int = 150) -> Case:
    """The smallest that was found. fails: whether a case still does, in the same way."""
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in _smaller(case):
            tries -= 1
            if tries <= 0:
                break
            if fails(smaller):
                case, progress = smaller, True
                break
    return case


def _with(case: Case, change: Callable[[Array], Array]) -> Case:
    return case.replaced(lambda v: change(v) if isinstance(v, Array) else v)


def _smaller(case: Case) -> Iterator[Case]:
    if case.inputs is None:
        for key in case.keywords:
            yield replace(case, keywords={k: v for k, v in case.keywords.items() if k != key})
    if any(a.layout != "plain" for a in case.arrays):
        yield _with(case, lambda a: replace(a, layout="plain"))
        for one in case.arrays:
            if one.layout != "plain":
                yield _with(case, lambda a, one=one: replace(a, layout="plain") if a is one else a)
    sizes = sorted({n for a in case.arrays for n in a.shape if n > 1}, reverse=True)
    for size in sizes:  # the same size is mostly that of the same thing
        for less in (1, 2, size - 1):
            if less < size:
                yield _with(case, lambda a, size=size, less=less: _cut(a, size, less))
    for one in case.arrays:
        for axis, size in enumerate(one.shape):
            if size > 1:
                yield _with(case, lambda a, one=one, axis=axis: replace(a, values=np.take(a.values, [0], axis), layout="plain") if a is one else a)
    for one in case.arrays:
        v = one.values
        if v.size and v.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                simple = np.round(v * 2) / 2
            if not np.array_equal(simple, v, equal_nan=True):
                yield _with(case, lambda a, one=one, simple=simple: replace(a, values=simple.astype(a.values.dtype)) if a is one else a)
        if one.dtype in ("float64", "float16", "bfloat16"):
            yield _with(case, lambda a, one=one: replace(a, values=a.values.astype(np.float32), dtype="float32") if a is one else a)


def _cut(array: Array, size: int, less: int) -> Array:
    index = tuple(slice(0, less) if n == size else slice(None) for n in array.shape)
    return replace(array, values=np.array(array.values[index])).fitting()
