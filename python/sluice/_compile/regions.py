"""The regions that there are: one for each function or module that was given to compile()."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from sluice._compile.dispatch import Region
from sluice._compile.settings import Settings

_regions: weakref.WeakSet[Region] = weakref.WeakSet()
_lock = threading.Lock()


def region_of(function: Any, asked: dict[str, Any], where: str = "compile", inside: bool = False) -> Region:
    region = Region(function, Settings(where=where, **asked), inside=inside)
    region.asked = asked
    with _lock:
        _regions.add(region)
    return region


def all_regions() -> list[Region]:
    with _lock:
        return list(_regions)
