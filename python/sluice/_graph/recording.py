"""Recordings of whatever graphs run: SLUICE_TRACE, and sluice.profiler.trace()."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from typing import Any

from sluice import _C

_running: trace | None = None
_capture: Any = None  # sluice.utils.capture


class trace:
    """Records the steps of all graphs that are called inside of the `with` block, each plan's in a file of its own.

    The first plan that runs goes to `path`, others to "path.2", "path.3" (in front of its suffix). A path that ends in ".json" gets
    Chrome's JSON, for Perfetto; any other a recording for `plan-viz blame`, `trace` and `latency`, which takes at most 8 bytes
    an event. Without a path nothing is kept but a summary, printed to stderr at the end: where the time of each plan went.

    One runs at a time, and keeps the plans that it records until it ends. Ranks of a job write files of their own. What a
    program takes itself meanwhile (Graph.set_trace, Graph.save_trace, profile) is not in the files.
    `SLUICE_TRACE=path python train.py` records the whole program so, and `SLUICE_TRACE= python train.py` prints the summary.
    """

    def __init__(self, path: Any = None) -> None:
        self._path = os.fspath(path) if path is not None else ""
        self._files: list[tuple[str, str, Any, Any]] = []  # name of the graph, path, file, session
        self._known: set[int] = set()
        self._folder: tempfile.TemporaryDirectory | None = None

    @property
    def paths(self) -> list[str]:
        """Of the files so far."""
        return [path for _, path, _, _ in self._files]

    def __enter__(self) -> trace:
        global _running
        if _running is not None:
            raise RuntimeError("trace: one runs already; end it first, or unset SLUICE_TRACE")
        if not self._path:
            self._folder = tempfile.TemporaryDirectory(prefix="sluice-trace-")
        _running = self
        return self

    def __exit__(self, *_: Any) -> None:
        global _running
        _running = None
        try:
            for _, _, file, session in self._files:
                _wait_for(session)
                file.close()
            if self._folder is not None:
                for name, path, _, _ in self._files:
                    print(f"SLUICE_TRACE: graph '{name}'\n{_C.blame_text(path)}", end="", file=sys.stderr)
        finally:
            if self._folder is not None:
                self._folder.cleanup()

    def watch(self, call: Any) -> None:
        """Records what the plans of a call do from now on."""
        for session in call.sessions():
            if id(session) in self._known:
                continue
            path = self._next_path()
            _wait_for(session)  # steps that were called before are not of this recording
            self._files.append((call.name, path, session.record_trace(path), session))
            self._known.add(id(session))

    def _next_path(self) -> str:
        number = len(self._files) + 1
        base = self._path if self._folder is None else os.path.join(self._folder.name, "run.slt")
        stem, suffix = os.path.splitext(base)
        if int(os.environ.get("WORLD_SIZE") or 1) > 1:
            stem += f".rank{os.environ.get('RANK', 0)}"
        return stem + (f".{number}" if number > 1 else "") + suffix


def _wait_for(session: Any) -> None:
    """Until the steps that were called have ended."""
    try:
        session.synchronize()
    except Exception:  # a step's own failure has been told, or will be, where the step was called
        pass


def runs(call: Any) -> None:
    """Told of each call of a graph before it submits a step."""
    if _running is not None:
        _running.watch(call)


def capture_with(capture: Any) -> None:
    """From now on `capture` is told of each step (None: nobody is)."""
    global _capture
    if capture is not None and _capture is not None:
        raise RuntimeError("capture: one runs already; end it first")
    _capture = capture


def capturing() -> bool:
    """Whether somebody is told."""
    return _capture is not None


def captured(call: Any, inputs: Any, submit: Any) -> Any:
    """The results of submit(), a step of a call; None where it gave none. REQUIRES: capturing()."""
    capture = _capture
    capture.begin_step(call, inputs)
    outputs = submit()
    if outputs is not None:
        capture.end_step(outputs)
    return outputs


def running() -> bool:
    """Whether what plans do goes to files: then nobody else may take it."""
    return _running is not None


def begin_as_environment_says() -> None:
    """When sluice is imported."""
    path = os.environ.get("SLUICE_TRACE")
    if path is None:
        return
    running = trace(path or None)
    running.__enter__()
    atexit.register(running.__exit__)
