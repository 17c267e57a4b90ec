"""multiprocessing, whose queues and pipes send tensors in shared memory: torch.multiprocessing.

A tensor that is sent is a copy, which sender and receivers do not share; after t.share_memory_() it is the tensor itself, and
all see what any of them writes. (torch moves a tensor to shared memory when it is sent.) The memory has no name, so nothing is
left behind.
A sender must live until its tensors are received.
"""

from __future__ import annotations

import multiprocessing as _multiprocessing
from multiprocessing import *  # noqa: F403

from sluice.multiprocessing._reductions import register as _register
from sluice.multiprocessing._spawn import (ProcessContext as ProcessContext, ProcessExitedException as ProcessExitedException,
                                           ProcessRaisedException as ProcessRaisedException, spawn as spawn,
                                           start_processes as start_processes)

__all__ = [*_multiprocessing.__all__, "ProcessContext", "ProcessExitedException", "ProcessRaisedException",  # noqa: PLE0604
           "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn", "start_processes",
           "unlink_all_shared_memory"]

_STRATEGY = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    return {_STRATEGY}


def get_sharing_strategy() -> str:
    return _STRATEGY


def set_sharing_strategy(new_strategy: str) -> None:
    """There is one: memory without a name, of which processes give each other descriptors."""
    if new_strategy != _STRATEGY:
        raise ValueError(f"set_sharing_strategy: got {new_strategy!r}; only {_STRATEGY!r} is supported, which leaves "
                         "nothing behind and needs a "
                         "descriptor for each tensor that is shared (ulimit -n)")


def unlink_all_shared_memory() -> None:
    """Nothing: shared memory has no names here, and ends with its last user."""


_register()
