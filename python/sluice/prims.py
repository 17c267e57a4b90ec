"""The primitive ops: the closed set of what every other op can be made of.

Which they are follows from the definitions of the ops: a primitive op has no decomposition. `graph.config.decompose_to_prims()`
has a graph compute by them alone.
"""

from __future__ import annotations

import builtins

from sluice import _C

__all__ = ["decompositions", "list"]


def list() -> builtins.list[str]:  # noqa: A001
    """Names of the primitive ops, in order."""
    return [name for name, parts in sorted(_C.composition().items()) if not parts]


def decompositions() -> dict[str, builtins.list[str]]:
    """By the name of each other op: what its decomposition calls, other composite ops among them."""
    return {name: parts for name, parts in sorted(_C.composition().items()) if parts}
