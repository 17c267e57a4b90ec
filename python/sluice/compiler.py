"""torch.compiler: what there is around sluice.compile, and questions that code asks about being traced."""

from __future__ import annotations

import functools
from typing import Any

from sluice._compile import compile, explain, list_backends, register_backend, reset, stats  # noqa: A004
from sluice._compile.guards import disabled as _disabled
from sluice._compile.breaks import Break as _Break
from sluice._compile.capture import is_compiling as _is_compiling
from sluice.jit import is_tracing
from sluice.nn.modules.module import Module as _Module

__all__ = ["allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "explain", "is_compiling",
           "is_dynamo_compiling", "is_exporting", "list_backends", "register_backend", "reset", "stats"]

is_compiling = is_dynamo_compiling = is_tracing


def is_exporting() -> bool:
    """False: a plan is written after it was traced."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: Any = None) -> Any:
    """A decorator: in sluice.compile, calls of the function are breaks, and run eagerly; with `recursive`, so does compiled code that it
    calls. For a module its forward() is meant. The build() of an nn.Graph is traced as a whole, and goes through it."""
    if fn is None:
        return lambda function: disable(function, recursive, reason=reason)
    if isinstance(fn, _Module):
        fn.forward = disable(fn.forward, recursive, reason=reason)  # type: ignore[method-assign]
        return fn

    @functools.wraps(fn)
    def eager(*args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            raise _Break("disabled", f"{getattr(fn, '__qualname__', fn)} is disabled by compiler.disable" + (f": {reason}" if reason else ""))
        if not recursive:
            return fn(*args, **kwargs)
        with _disabled():
            return fn(*args, **kwargs)

    return eager


def _as_it_is(fn: Any) -> Any:
    """`fn`: code is traced through, whatever it calls."""
    return fn


allow_in_graph = assume_constant_result = _as_it_is


def cudagraph_mark_step_begin() -> None:
    """Nothing: results of plans are tensors of their own."""
