"""The common part of containers of modules and of parameters."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any


class Indexed:
    """Names "0", "1", ... of entries by index."""

    def _get_abs_string_index(self, idx: int) -> str:
        index = operator.index(idx)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range")
        return str(index % len(self))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]


def pairs_of(what: str, entries: Any) -> Any:
    """(key, value) of a mapping, or of an iterable of pairs."""
    if not isinstance(entries, Iterable):
        raise TypeError(f"{what}.update should be called with an iterable of key/value pairs, but got {type(entries).__name__}")
    if isinstance(entries, Mapping) or hasattr(entries, "items"):
        return list(entries.items())
    pairs = []
    for i, pair in enumerate(entries):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{what} update sequence element #{i} should be Iterable; is {type(pair).__name__}")
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(f"{what} update sequence element #{i} has length {len(pair)}; 2 is required")
        pairs.append(pair)
    return pairs
