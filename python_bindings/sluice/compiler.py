"""torch.compiler: questions that code asks about being traced. Graphs are made by `sluice.nn.Graph`."""

from __future__ import annotations

from typing import Any

from sluice.jit import is_tracing

__all__ = ["disable", "is_compiling", "is_dynamo_compiling", "is_exporting"]

is_compiling = is_dynamo_compiling = is_tracing


def is_exporting() -> bool:
    """False: a plan is written after it was traced."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: Any = None) -> Any:
    """A decorator that leaves the function as it is: build() is traced as a whole."""
    return fn if fn is not None else lambda function: function
