"""Lets others look at this process while it runs: `plan-viz top PID`, and `plan-viz live PID`."""

from __future__ import annotations

from typing import Any

from sluice import _C


class live:
    """From now on `plan-viz top PID` and `plan-viz live PID` show what the plans of this process do; in a `with` block, until its end.

    It costs nothing while nobody looks: a thread sleeps until it is asked. Only the same user and root are answered, and they can look
    but not touch. `SLUICE_LIVE=1 python train.py` does the same for the whole program. Of a process that is not shown, `plan-viz` says so.

    Args:
        on: False ends it. Nothing of it is left then.

    Raises:
        RuntimeError: when the system gives no socket or thread.
    """

    def __init__(self, on: bool = True) -> None:
        if not isinstance(on, bool):
            raise TypeError(f"live: on is {type(on).__name__}; must be bool")
        self._before = _C.is_live()
        _C.set_live(on)

    def __enter__(self) -> live:
        return self

    def __exit__(self, *_: Any) -> None:
        _C.set_live(self._before)
