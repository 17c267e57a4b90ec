"""A bar for what may take long."""

from __future__ import annotations

import sys
from typing import Any, Iterable


def with_progress(items: Iterable[Any], what: str, shown: bool | None = None) -> Any:
    """The items, with a bar on stderr when they take long, where tqdm is there to draw one. shown: by default, on a terminal."""
    try:
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ImportError:
        return items
    return tqdm(items, desc=what, delay=2.0, leave=False, disable=not sys.stderr.isatty() if shown is None else not shown)
