"""torch.jit, as far as it means something here: marks for a compiler of Python, which there is none of, so that what is marked
runs as it is. Graphs are traced (`sluice.nn.Graph`); to_static() rewrites control flow for that."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

from sluice import _C
from sluice._translate import code, enable_to_static, not_to_static, set_code_level, set_verbosity, to_static

__all__ = ["Attribute", "Final", "annotate", "code", "enable_to_static", "export", "ignore", "interface", "is_scripting", "is_tracing",
           "isinstance", "not_to_static", "script", "script_if_tracing", "script_method", "set_code_level", "set_verbosity", "to_static",
           "trace", "unused"]

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


export = interface = script_if_tracing = script_method = _mark
isinstance = isinstance  # noqa: A001, PLW0127  # which torch has for types that its compiler refines


class Attribute(NamedTuple):
    """A value with the type that a compiler of Python would give it."""

    value: Any
    type: Any


def annotate(the_type: Any, the_value: _T) -> _T:
    """`the_value` as it is: its type is for a compiler of Python."""
    return the_value


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator that leaves the function as it is."""
    return drop if callable(drop) else _mark


unused = _mark


def script(obj: _T, *args: Any, **kwargs: Any) -> _T:
    """`obj`, a function, class or module, as it is; also as a decorator. It runs as Python does; a plan is made of it by
    `sluice.nn.Graph` or `sluice.compile`."""
    return obj


def trace(*args: Any, **kwargs: Any) -> Any:
    raise _C.NotImplementedError("jit.trace: use sluice.nn.Graph, or sluice.lower(function, *inputs).compile()")
