"""Several processes: launch them, let them meet, and combine their tensors.

    python -m sluice.distributed.launch --nproc_per_node 2 script.py

    import sluice
    import sluice.distributed as dist
    place = dist.init()                 # rank and world size, from the launcher's variables
    x = sluice.ones(4) * place.rank
    dist.all_reduce(x)                  # the sum over all ranks, in every rank

Names and semantics are torch.distributed's. A call returns when this rank's part is done, or with async_op=True at once;
when a rank fails, is killed
or hangs, every other rank's current or next call raises an error that names it.
"""

from __future__ import annotations

import atexit as _atexit
import dataclasses as _dataclasses
import datetime as _datetime
from typing import Any as _Any, Callable as _Callable

from sluice import _C
from sluice.distributed import _environment, _failure
from sluice.distributed._collectives import (ReduceOp, all_gather, all_gather_into_tensor, all_reduce, all_to_all,
                                             all_to_all_single, barrier, broadcast, gather, recv, reduce, reduce_scatter,
                                             reduce_scatter_tensor, scatter, send)
from sluice.distributed._environment import Place
from sluice._base.job import Work, state as _state
from sluice.errors import RuntimeError, ValueError  # noqa: A004

__all__ = ["Place", "ReduceOp", "Work", "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "barrier",
           "broadcast", "default_pg_timeout", "destroy", "gather", "get_local_rank", "get_rank", "get_world_size", "init",
           "is_available", "is_initialized", "recv",
           "reduce", "reduce_scatter", "reduce_scatter_tensor", "register_carrier", "scatter", "send"]

default_pg_timeout = _datetime.timedelta(seconds=300)


def init(*, rank: int | None = None, world_size: int | None = None, master: str | None = None, token: str | None = None,
         timeout: float = default_pg_timeout.total_seconds(), heartbeat: float = 10.0, carrier: str = "gloo") -> Place:
    """Meets the other ranks of this job; returns the Place of this one, which says where it was read.

    Without arguments the place comes from the environment, see `Place.source`. `rank`, `world_size` and `master`
    ("host:port", where rank 0 listens) replace it, all three together; `token` is the ranks' shared secret.

    timeout: seconds to wait for the others, here and in each collective.
    heartbeat: seconds after which a rank that shows no sign of life counts as hung. A killed one is noticed at once.
    carrier: what carries messages between the ranks: "gloo", connections of Sluice's own, or a name of register_carrier(), which then
        finds the other ranks, too; `master` may be left out.

    Raises ValueError for variables that are wrong (by name) or differ between ranks, TimeoutError that names the ranks
    that did not come, OSError when the master's port is taken.
    """
    if _state.world is not None:
        raise RuntimeError("distributed.init: called twice; call destroy() first")
    if carrier != "gloo" and rank is not None and world_size is not None and master is None:
        master = "127.0.0.1:1"  # nobody listens there
    given = [rank is not None, world_size is not None, master is not None]
    if any(given) and not all(given):
        raise ValueError(f"distributed.init: rank is {rank}, world_size is {world_size}, master is {master!r}; give all three, or none "
                         "to read them from the environment")
    if all(given):
        environment = {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
        host, _, port = str(master).rpartition(":")
        environment.update(MASTER_ADDR=host.strip("[]"), MASTER_PORT=port, SLUICE_LAUNCHER="arguments")
        if token is not None:
            environment[_environment.TOKEN] = token
        place = _environment.find(environment)
    else:
        place = _environment.find()
        if token is not None:
            place = _dataclasses.replace(place, token=token)
    host, _, port = place.master.rpartition(":")
    _state.world = _C.World(place.rank, place.world_size, host or "127.0.0.1", int(port or 0), place.token, timeout, heartbeat,
                            place.local_rank, carrier)
    _state.place = place
    _failure.watch()
    return place


def register_carrier(name: str, make: _Callable[[int, int, float], _Any]) -> None:
    """Registers what carries messages between ranks instead of Sluice's own connections: a library's, such as MPI's, or those of another
    network. `init(carrier=name)` asks for it; then all collectives go that way, those of this module and those of plans.

    make(rank, world_size, timeout) returns an object with these methods. They are called from several threads.

    send(to, key, data): takes a message, bytes, for rank `to`; does not wait until that receives it.
    receive(source, key): the next message of rank `source` with this key, an int, in the order in which they were sent; TimeoutError when
        none has come in `timeout` seconds.
    fail(text): from now on receive() raises RuntimeError(text), in every rank, those that wait included.
    close(): this rank leaves.
    """
    if not callable(make) or not isinstance(name, str):
        raise ValueError(f"distributed.register_carrier: got {name!r} and {make!r}; must be a name, and what makes a carrier")
    _C.register_carrier(name, make)


def destroy() -> None:
    """Leaves the job: the other ranks go on as long as they want nothing of this one. Nothing when not initialized."""
    _state.settle()
    _state.leave()


def is_available() -> bool:
    """True: every build has it."""
    return True


def is_initialized() -> bool:
    return _state.world is not None


def get_rank() -> int:
    """This process's rank. Raises RuntimeError before init()."""
    return _state.get("get_rank").rank


def get_world_size() -> int:
    """The number of ranks. Raises RuntimeError before init()."""
    return _state.get("get_world_size").size


def get_local_rank() -> int:
    """This process's rank among those of its host. Raises RuntimeError before init()."""
    _state.get("get_local_rank")
    return _state.place.local_rank


def _at_exit():
    failure = _failure.of_this_process()
    if not failure:
        _state.settle()
    _state.leave(failure)


# Before the engine is shut down: exit functions run in reverse order.
_atexit.register(_at_exit)
