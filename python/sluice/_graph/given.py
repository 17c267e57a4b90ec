"""The arguments of a call, taken apart once: whoever checks, traces or submits them afterwards is given this."""

from __future__ import annotations

from typing import Any, NamedTuple

from sluice._base.structure import Structure, flatten


class Given(NamedTuple):
    """A nest of arguments, a dict by parameter, as its structure, its tensors, and their names ("batch.images", "x.0")."""

    structure: Structure
    leaves: list[Any]
    names: list[str]


def taken_apart(arguments: dict[str, Any]) -> Given:
    """Arguments by parameter. Throws TypeError, naming it, for what a graph does not take."""
    leaves: list[Any] = []
    names: list[str] = []
    return Given(flatten(arguments, "", leaves, names), leaves, names)
