"""What kernels took in the first steps of a graph on this machine, kept for when it is compiled again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from typing import Any

_STEPS = 16


def use_cache(directory: str | None, name: str, captured: Any, options: Any) -> bool:
    """Has the compiler read what is known of a graph, if it wants that; true when it is to be measured."""
    if directory is None or "cost_file" in options:
        return False
    from sluice import distributed

    if distributed.is_initialized() and distributed.get_world_size() > 1:
        return False
    options["cost_file"] = _path(directory, name, captured.text())
    return not os.path.exists(options["cost_file"]) and not options.get("trace", False)


def _path(directory: str, name: str, text: str) -> str:
    """The file of a graph, by all that it says, and of this machine."""
    if not directory:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        directory = os.path.join(home, "sluice", "costs")
    machine = f"{platform.node()} {platform.machine()} {os.cpu_count()}"
    digest = hashlib.sha256(f"{machine}\n{text}".encode()).hexdigest()[:16]
    return os.path.join(directory, f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}-{digest}.json")


class FirstSteps:
    """Of a session that traces from its start. Counts the calls; behind the last of them it writes the file, once."""

    def __init__(self, session: Any, path: str) -> None:
        self._session, self._path, self._left = session, path, _STEPS

    def called(self) -> bool:
        """False once all is done."""
        self._left -= 1
        if self._left > 0:
            return True
        self._session.set_trace(False)
        text = self._session.take_costs()
        if json.loads(text)["kernels"]:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            scratch = f"{self._path}.{os.getpid()}"
            with open(scratch, "w") as file:
                file.write(text)
            os.replace(scratch, self._path)  # other processes see all of it or nothing
        return False
