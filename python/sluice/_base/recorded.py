"""Functions of Python whose calls a trace of sluice.fx records, and the places where it finds them."""

from __future__ import annotations

from typing import Any

# Dicts of modules, and names in them.
places: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}


def note(where: dict[str, Any], name: str) -> None:
    """The function of this name in a module is recorded from now on, in all traces."""
    places[id(where), name] = (where, name)


def _assert(condition: Any, message: str) -> None:
    """torch._assert: as a statement, which a trace keeps."""
    assert condition, message
