"""A graph that is refused leaves this to look at: its plan, or the graph as far as it was traced."""

from __future__ import annotations

import os
import shutil
from typing import Any

from sluice import _C


class Refused:
    """A context that adds to the errors of Sluice raised inside how to look at what was refused."""

    def __init__(self, name: Any, config: Any) -> None:
        self.captured = None
        dump_dir = config.options.get("dump_dir") or os.environ.get("SLUICE_DUMP_IR")
        self._command = "" if dump_dir else "run again with SLUICE_DUMP_IR=out, then "
        self._shown = os.path.join(dump_dir or "out", f"{name}.refused")
        self._directory = self._shown if dump_dir else None
        if dump_dir:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if not isinstance(error, _C.Error) or not error.args or not isinstance(error.args[0], str):
            return
        planned = isinstance(error, MemoryError) or error.args[0].startswith("plan '")
        if self._directory and not planned and self.captured:
            os.makedirs(self._directory, exist_ok=True)
            with open(os.path.join(self._directory, "graph.txt"), "w", encoding="utf-8") as file:
                file.write(self.captured.text())
        view = "mem" if isinstance(error, MemoryError) else "verify" if planned else "ir"
        error.args = (f"{error.args[0]}\n  look: {self._command}plan-viz {view} {self._shown}", *error.args[1:])
