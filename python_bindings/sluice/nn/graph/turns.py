"""What the plans of one graph have in common when they share memory: one at a time has steps in flight."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator

from sluice import _C


class Blocks:
    """Memory that plans of one graph share for their arenas. A plan that needs more than is there gets a new block, and the
    old one goes with the plans that have it."""

    def __init__(self) -> None:
        self.arenas = _C.SharedArenas()

    def loaded(self, call: Any) -> None:
        """REQUIRES: its plan is the last that was loaded."""
        call.blocks = {space: self.arenas.bytes(space) for space in call.session.ledger()["spaces"]}

    def held(self, calls: list[Any]) -> dict[str, int]:
        """By space, the bytes of the blocks of `calls`, which are all that there are. Blocks differ in their sizes."""
        blocks = {(space, size) for call in calls for space, size in call.blocks.items()}
        blocks |= {(space, self.arenas.bytes(space)) for space, _ in blocks}
        return {space: sum(size for s, size in blocks if s == space) for space, _ in blocks}


class Turns:
    """Of sessions that share the memory of their arenas, lets one at a time have steps in flight. Thread-safe."""

    def __init__(self) -> None:
        self._door = threading.Lock()  # whoever wants another session's turn holds it meanwhile: first come, first served
        self._left = threading.Condition()
        self._inside = 0
        self._active: Any = None
        self._late: list[BaseException] = []  # what sessions failed with that no result has shown

    @contextlib.contextmanager
    def of(self, session: Any, try_only: bool = False) -> Iterator[bool]:
        """Inside, only `session` may submit steps. False with `try_only` where that would have to be waited for."""
        entered = self._door.acquire(blocking=not try_only)
        if entered:
            try:
                entered = self._active is session or not try_only or self._idle()
                if entered:
                    self._switch(session)
                    with self._left:
                        self._inside += 1
            finally:
                self._door.release()
        try:
            yield entered
        finally:
            if entered:
                with self._left:
                    self._inside -= 1
                    self._left.notify_all()

    def leave(self, session: Any) -> None:
        """Waits until it has no step in flight; it must not be used any more."""
        with self._door:
            if self._active is session:
                self._switch(None)

    def raise_late(self) -> None:
        with self._left:
            if self._late:
                raise self._late.pop(0)

    def _idle(self) -> bool:
        with self._left:
            return not self._inside and (self._active is None or not self._active.stats()["in_flight"])

    def _switch(self, session: Any) -> None:
        """REQUIRES: the door is held."""
        if self._active is session:
            return
        with self._left:
            self._left.wait_for(lambda: self._inside == 0)
        if self._active is not None:
            try:
                self._active.synchronize()
            except (_C.TimeoutError, KeyboardInterrupt):
                raise  # it still runs
            except Exception as error:
                with self._left:
                    self._late.append(error)
        self._active = session


class Plans:
    """What families and caches have in common: several calls, one of which was used last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.turns = Turns()
        self._last: Any = None

    @property
    def session(self) -> Any:
        """Of the plan that was used last."""
        return self._last.session

    def calls(self) -> list[Any]:
        """Of all plans that there are now."""
        raise NotImplementedError(f"{type(self).__name__}: calls() must be defined")

    def sessions(self) -> list[Any]:
        return [call.session for call in self.calls()]

    def synchronize(self) -> None:
        for session in self.sessions():
            session.synchronize()
        self.turns.raise_late()

    def reset(self) -> None:
        for call in self.calls():
            call.reset()
