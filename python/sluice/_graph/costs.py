"""The times that kernels took on this machine, kept in files for graphs that are compiled later."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import time
from typing import Any

from sluice._base.replaced_file import replaced

_STEPS = 16
_LOCK_TIMEOUT_S = 10.0


def use_cache(directory: str | None, options: Any) -> bool:
    """Has the compiler read what is known of kernels, if the graph wants that; true where more may be measured."""
    if directory is None or "cost_file" in options:
        return False
    from sluice import distributed

    if distributed.is_initialized() and distributed.get_world_size() > 1:
        return False
    options["cost_file"] = _path(directory)
    return not options.get("trace", False)


def _path(directory: str) -> str:
    """The file of this machine."""
    if not directory:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        directory = os.path.join(os.environ.get("SLUICE_CACHE_DIR") or os.path.join(home, "sluice"), "costs")
    machine = f"{platform.node()} {platform.machine()} {os.cpu_count()}"
    return os.path.join(directory, f"kernels-{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json")


def add_costs(session: Any, path: str) -> None:
    """Adds what kernels took since the session's trace began to the history in a file, which others may be adding to as well."""
    directory = os.path.dirname(path) or "."
    lock = os.open(directory, os.O_RDONLY)
    try:
        _lock(lock, directory)
        text = session.take_costs(path)
        with replaced(path) as file:  # whoever reads it sees all of it or nothing
            file.write(text.encode())
    finally:
        os.close(lock)


def _lock(descriptor: int, directory: str) -> None:
    end = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise TimeoutError(f"{directory}: locked by another process for {_LOCK_TIMEOUT_S:g} s; one process at a time "
                                   "can add costs; try again, or use another directory") from None
        time.sleep(0.01)


class FirstSteps:
    """Watches a session that traces from its start. Counts the calls; behind the last of them it adds to the file, once."""

    def __init__(self, session: Any, path: str) -> None:
        self._session, self._path, self._left = session, path, _STEPS

    def called(self) -> bool:
        """False once all is done."""
        self._left -= 1
        if self._left > 0:
            return True
        self._session.set_trace(False)
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        add_costs(self._session, self._path)
        return False
