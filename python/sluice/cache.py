"""Plans that are kept on disk, so that what was compiled once is not compiled again.

A plan is found where the graph, the options, the versions, the processor and what kernels are known to take are the same; it is
then the plan that compiling would make. `SLUICE_CACHE=on` in the environment, or set_directory(), switches this on, and
`SLUICE_CACHE_DIR` says where the folder lies. It is off by default: an ordinary plan is read about as fast as it is compiled, so
that it pays where the compiler searches, for memory or within a budget.
"""

from __future__ import annotations

import operator
import os
from typing import Any

from sluice import _C

__all__ = ["clear", "set_directory", "set_limit", "stats"]


def stats() -> dict[str, Any]:
    """The counts of this process, and of the folder.

    hits: plans that were read; misses: plans that were compiled, since there was none; rejected: of these, where a file was there but
    not as it had been written; stored and evicted: files that this process has written, and let go to make room. entries, bytes:
    of the folder now. limit: the most bytes it may have. directory: where it is; None: plans are not kept. Graphs whose plans cannot
    be kept are not counted.
    """
    return dict(_C.plan_cache_stats())


def set_directory(directory: str | os.PathLike[str] | None, *, check: bool = False) -> None:
    """Keeps plans in another folder from now on, and counts anew; None: keeps none.

    check: graphs are compiled nevertheless, and RuntimeError is raised where the plan that is kept is another one.
    """
    _C.set_plan_cache(None if directory is None else os.path.abspath(os.fspath(directory)), bool(check))


def clear() -> None:
    """Removes all plans that are kept."""
    _C.clear_plan_cache()


def set_limit(bytes: int) -> None:  # noqa: A002
    """The most bytes that this process leaves in the folder: plans that were used longest ago go first. 1 GiB by default."""
    try:
        number = operator.index(bytes)
    except TypeError:
        raise TypeError(f"cache.set_limit: bytes: {type(bytes).__name__}; must be an int") from None
    if not 0 <= number < 2**63:
        raise ValueError(f"cache.set_limit: bytes: {number}; must be 0 to 2**63 - 1")
    _C.set_plan_cache_limit(number)
