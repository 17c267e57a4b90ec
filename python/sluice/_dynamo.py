"""torch._dynamo, as far as scripts call it."""

from __future__ import annotations

from typing import Any

from sluice.compiler import allow_in_graph, disable, explain, is_compiling, list_backends, register_backend, reset

__all__ = ["allow_in_graph", "disable", "explain", "graph_break", "is_compiling", "list_backends", "mark_dynamic", "optimize",
           "register_backend", "reset"]


def optimize(backend: Any = "plan", *, nopython: bool = False, dynamic: bool | None = None, disable: bool = False) -> Any:
    """sluice.compile as a decorator; nopython is fullgraph."""
    from sluice._compile import compile

    return lambda fn: compile(fn, fullgraph=nopython, dynamic=dynamic, backend=backend, disable=disable)


def graph_break(msg: str = "") -> None:
    """A break, where code is compiled."""
    from sluice._compile.breaks import Break, user_place
    from sluice._compile.capture import is_compiling as compiling

    if compiling():
        raise Break("asked", "graph_break() was called" + (f": {msg}" if msg else ""), user_place())


def mark_dynamic(t: Any, index: Any, **kwargs: Any) -> None:
    """Nothing: sizes of axis 0 are dynamic with dynamic=True, and from the second size on with dynamic=None."""
