"""The job that this process is in, by OneFlow's names: one rank of one before sluice.distributed.init()."""

from __future__ import annotations

import socket

from sluice import distributed
from sluice._tensor.global_tensors import placement


def get_world_size() -> int:
    """How many ranks there are."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def get_rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


def get_local_rank() -> int:
    """This rank's number among those of its host."""
    return distributed.get_local_rank() if distributed.is_initialized() else 0


def get_node_size() -> int:
    """How many hosts the ranks are on. Collective in a job of several ranks."""
    if get_world_size() == 1:
        return 1
    from sluice._tensor.global_tensors import _job

    return len(set(_job().all_gather_text(socket.gethostname())))


def all_device_placement(type: str) -> placement:  # noqa: A002 OneFlow's name
    """All devices of that kind: one of each rank."""
    return placement(type, list(range(get_world_size())))


def rdma_is_initialized() -> bool:
    """False: ranks are connected by TCP."""
    return False


def __getattr__(name: str) -> object:
    from sluice._names.left_out import missing

    raise missing("sluice.env", name)
