"""An exception that ends this process ends the job: the other ranks are told what it was, and the launcher who began."""

import json
import os
import sys
import threading
import traceback

from sluice._base.job import state

REPORT = "SLUICE_FAILURE_REPORT"  # the launcher's file for this process

_lock = threading.Lock()
_failure = ""
_watching = False


def watch():
    """From now on, exceptions that nobody catches are told to the other ranks."""
    global _watching
    if _watching:
        return
    _watching = True
    before = sys.excepthook

    def hook(kind, value, trace):
        before(kind, value, trace)
        if not hasattr(sys, "ps1"):  # an interactive session survives its errors
            told(kind, value, trace)

    sys.excepthook = hook


def told(kind, value, trace):
    global _failure
    frame = traceback.extract_tb(trace)[-1] if trace is not None else None
    line = f"  ({os.path.basename(frame.filename)}:{frame.lineno})" if frame else ""
    text = "".join(traceback.format_exception_only(kind, value)).strip()
    # Errors of Sluice end with their line.
    text += "" if text.endswith(line.strip() or "\n") else line
    world = state.world
    culprit = world.failed_rank if world is not None else -1
    with _lock:
        _failure = text
    if REPORT in os.environ:
        report = {"error": text, "because_of": culprit if state.place and culprit not in (-1, state.place.rank) else None}
        part = os.environ[REPORT] + ".part"
        with open(part, "w") as file:
            json.dump(report, file)
        os.replace(part, os.environ[REPORT])
    state.leave(text)


def of_this_process():
    with _lock:
        return _failure
