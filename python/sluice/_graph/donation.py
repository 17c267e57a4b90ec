"""Arguments whose memory calls take for good (GraphConfig.donate_inputs)."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice.nn.parameter import Parameter


def donated_leaves(graph: str, donated: list[str], names: list[str], leaves: list[Any]) -> list[str]:
    """The tensors among the arguments that `donated` names, by themselves or by nests that they are in."""
    found = {}
    for wanted in donated:
        inside = {n: t for n, t in zip(names, leaves) if n == wanted or n.startswith(wanted + ".")}
        if not inside:
            raise _C.ValueError(f"graph '{graph}': donate_inputs names '{wanted}'; its arguments are {names}")
        found.update(inside)
    for name, leaf in found.items():
        if leaf._global:
            raise _C.NotImplementedError(f"graph '{graph}': argument '{name}' cannot be donated: it is global; donate local tensors")
    return [name for name in names if name in found]


def check_donated(graph: str, donated: frozenset[str], names: list[str], leaves: list[Any]) -> None:
    """Checks what only Python knows of them; the rest is checked where they are taken."""
    for name, leaf in zip(names, leaves):
        if name in donated and isinstance(leaf, Parameter):
            raise _C.ValueError(f"graph '{graph}': argument '{name}' cannot be donated: it is a parameter; donate a clone() of it")


def check_dims(graph: str, donated: list[str], dims: list[Any], ports: list[Any]) -> None:
    """Families take the rows of a call apart, or fill them up, in memory of their own."""
    for dim in dims:
        if donated and dim.fit == "split":
            raise _C.NotImplementedError(f"graph '{graph}': argument '{donated[0]}' cannot be donated: calls are split along dim "
                                         f"'{dim.name}'; give the dim fit='exact'")
    for name, _, axes in ports:
        for axis, (d, _) in enumerate(axes):
            if name in donated and d >= 0 and dims[d].fit != "exact":
                raise _C.NotImplementedError(f"graph '{graph}': argument '{name}' cannot be donated: its axis {axis} is "
                                             f"filled up along dim '{dims[d].name}', which takes a copy; give the dim "
                                             "fit='exact'")
