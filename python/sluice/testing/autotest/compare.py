"""Tells the difference between two outcomes, in words."""

from __future__ import annotations

import re
from typing import Any, Callable

import numpy as np

from sluice.testing.autotest.execute import Outcome

# Relative to the greatest magnitude of a tensor: sums are taken in another order.
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2, "complex64": 2e-5, "complex128": 1e-9}
# The words of torch for a dtype, a layout, a gradient or a spelling that it does not have. More is allowed here.
LIMITS = re.compile(r"not implemented for|not supported|only support|does not support|[uU]nsupported|is not yet implemented|"
                    r"currently support|not currently implemented|must be implemented|is not implemented|derivative for|"
                    r"not support dtype|"
                    r"is not differentiable with respect|positional arguments? but|expected .*(dtype|type)|same (dtype|type)|"
                    r"[dD]types must be the same|"
                    r"floating point|is no longer supported|boolean tensor|view size is not compatible")


# Errors that torch does not raise on purpose: any error will do.
ACCIDENTS = (AttributeError, AssertionError, UnboundLocalError, ZeroDivisionError, NameError)


def _widest(a: Any) -> np.ndarray:
    return np.asarray(a, np.complex128 if np.iscomplexobj(a) else np.float64)


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The distance of each element; infinite where one is no number, or infinite, and the other is not. Complex numbers are
    alike that have a part that is not finite."""
    a, b = _widest(a), _widest(b)
    with np.errstate(invalid="ignore", over="ignore"):
        alike = ~np.isfinite(a) & ~np.isfinite(b) if a.dtype.kind == "c" else np.isnan(a) & np.isnan(b)
        apart = np.where((a == b) | alike, 0.0, np.abs(a - b))
    return np.nan_to_num(apart, nan=np.inf, posinf=np.inf)


def scale_of(a: np.ndarray) -> float:
    a = _widest(a)
    return float(np.abs(a[np.isfinite(a)]).max(initial=1.0))


def value_difference(place: str, mine: Any, theirs: Any, precision: str, factor: float, exact: Any) -> str | None:
    array = isinstance(theirs, tuple) and len(theirs) == 2 and isinstance(theirs[0], np.ndarray)
    if place.startswith(("gradient", "second")) and (mine is None or theirs is None):  # no gradient is zeros
        some = mine if theirs is None else theirs
        return None if some is None or not some[0].any() else f"{place}: {'missing' if mine is None else 'torch has none'}"
    if not array:
        same = mine == theirs or (isinstance(mine, (float, complex)) and isinstance(theirs, (float, complex)) and
                                  distance(np.array(mine), np.array(theirs)) <= 1e-5 * max(1.0, abs(theirs)))
        return None if same else f"{place}: got {_short(mine)}; torch has {_short(theirs)}"
    if not isinstance(mine, tuple):
        return f"{place}: got {_short(mine)}; torch has a tensor"
    if mine[1] != theirs[1] or mine[0].shape != theirs[0].shape:
        return f"{place}: got {mine[1]}{mine[0].shape}; torch has {theirs[1]}{theirs[0].shape}"
    apart = distance(mine[0], theirs[0])
    allowed = 0.0
    if theirs[1] in TOLERANCE:
        allowed = factor * max(TOLERANCE[theirs[1]], TOLERANCE[precision]) * scale_of(theirs[0])
    if not (apart > allowed).any():
        return None
    if exact is not None and exact[0].shape == theirs[0].shape:  # nearer to the truth than torch, or nearly so near
        error, reference = distance(mine[0], exact[0]), distance(theirs[0], exact[0])
        if not ((error > 4 * reference + allowed) & (apart > allowed)).any():
            return None
    worst = np.unravel_index(apart.argmax(), apart.shape)
    return f"{place}: differs by {apart.max():.3g}, {allowed:.2g} is allowed: " \
           f"got {_short(mine[0].tolist())}; torch has {_short(theirs[0].tolist())}; " \
           f"most where {mine[0][worst]} should be {theirs[0][worst]}"


def difference(mine: Outcome, theirs: Outcome, precision: str, factor: float = 1.0, exact: Callable[[], Outcome] | None = None,
               refusals: bool = True) -> str | None:
    """Why they differ; None where they do not."""
    if theirs.error is not None:
        if theirs.stage != "forward":  # torch gives no gradient: what it has given before counts
            return None if mine.stage != "forward" or mine.error is None else f"refused: {_error(mine.error)}"
        if not refusals or LIMITS.search(str(theirs.error)) or isinstance(theirs.error, NotImplementedError):
            return None
        if mine.error is None:
            return f"accepted what torch refuses: {_error(theirs.error)}"
        builtin = next(k for k in type(theirs.error).__mro__ if k.__module__ == "builtins")
        if isinstance(mine.error, builtin) or builtin in ACCIDENTS:
            return None
        return f"refused as {_error(mine.error)}; torch: {_error(theirs.error)}"
    if mine.error is not None:
        return f"refused at {mine.stage}: {_error(mine.error)}"
    if len(mine.values) != len(theirs.values):
        return f"gave {len(mine.values)} values; torch {len(theirs.values)}"
    wide: dict[str, Any] | None = None
    for (place, a), (_, b) in zip(mine.values, theirs.values):
        text = value_difference(place, a, b, precision, factor, None)
        if text and exact is not None:
            wide = dict(exact().values) if wide is None else wide
            truth = wide.get(place)
            text = value_difference(place, a, b, precision, factor, truth if isinstance(truth, tuple) else None)
        if text:
            return text
    return None


def alias_difference(mine: Outcome, theirs: Outcome) -> str | None:
    for i, (a, b) in enumerate(zip(mine.aliases, theirs.aliases)):
        if a != b:
            return f"output {i} {_alias(a)}; torch's {_alias(b)}"
    return None


def _alias(a: Any) -> str:
    return "has memory of its own" if a is None else f"is a view of argument {a[0]} at byte {a[1]} with strides {a[2]}"


def _error(error: Exception) -> str:
    return f"{type(error).__name__}: " + str(error).partition("\n")[0][:200]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 160 else text[:157] + "..."
