"""torch.jit, as far as it means something here: marks for a compiler of Python, which there is none of. Graphs are traced
(`sluice.nn.Graph`); to_static() rewrites control flow for that."""

from __future__ import annotations

from typing import Any, TypeVar

from sluice import _C
from sluice._translate import to_static

__all__ = ["export", "ignore", "interface", "is_scripting", "is_tracing", "script", "script_if_tracing", "to_static", "trace", "unused"]

_T = TypeVar("_T")


def is_scripting() -> bool:
    """False: no Python is compiled."""
    return False


def is_tracing() -> bool:
    """Whether this thread traces the build() of a graph."""
    return bool(_C.is_tracing())


def _mark(function: _T) -> _T:
    """`function` as it is: what it says to a compiler of Python means nothing here."""
    return function


export = interface = script_if_tracing = _mark


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator that leaves the function as it is."""
    return drop if callable(drop) else _mark


unused = _mark


def script(*args: Any, **kwargs: Any) -> Any:
    raise _C.NotImplementedError("jit.script: no Python is compiled; trace it, by sluice.nn.Graph or sluice.lower(function, *inputs)")


def trace(*args: Any, **kwargs: Any) -> Any:
    raise _C.NotImplementedError("jit.trace: use sluice.nn.Graph, or sluice.lower(function, *inputs).compile()")
