"""Streams in time: conditions under which a source starts, and joins of streams of different rates.

    def frames():  # a source of a plan: 100 frames, one each 10 ms
        for _ in flow.Conditions().periodic(0.01).count(100):
            yield camera.read()

    def pairs():   # what a camera and a slower sensor have at equal times
        for timestamp, (frame, reading) in flow.join(camera_frames, readings):
            yield frame, reading if reading is not None else np.zeros(3, "float32")
"""

from __future__ import annotations

import threading
import time
from typing import Any, Iterable, Iterator

from sluice import _C

__all__ = ["Conditions", "Join", "join"]


class Conditions:
    """When a source starts: by the clock, so often, while a switch is on, when something is complete.

    Each condition gives tokens, and a start takes one of each, as an actor takes one of each of its inputs; so conditions join. An
    iteration gives the number of each start, and waits asleep until the next one. `set`, `complete` and `stop` may be called from
    any thread.
    """

    def __init__(self) -> None:
        self._own = _C.Conditions()
        self._changed = threading.Condition()  # its waits can be interrupted
        self._wakes = 0

    def periodic(self, seconds: float) -> Conditions:
        """A tick at once, and one each `seconds`, without drift. One tick waits at most, and what comes while it does is lost."""
        self._own.periodic(round(seconds * 1e9))
        return self

    def count(self, starts: int) -> Conditions:
        """So many starts."""
        self._own.count(starts)
        return self

    def switched(self, on: bool = True) -> Conditions:
        """Starts while a switch is on, which `set` throws over."""
        self._own.switched(on)
        return self

    def asynchronous(self) -> Conditions:
        """A start for each call of `complete`."""
        self._own.asynchronous()
        return self

    def set(self, on: bool) -> None:
        with self._changed:
            self._own.set(on)
            self._changed.notify_all()

    def complete(self) -> None:
        """Something is complete, which one start takes."""
        with self._changed:
            self._own.complete()
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing starts any more."""
        with self._changed:
            self._own.stop()
            self._changed.notify_all()

    def wait(self) -> bool:
        """Waits until all conditions hold. False: nothing will start any more. The thread sleeps until the time has come, or somebody calls
        set(), complete() or stop()."""
        with self._changed:
            while True:
                now = time.monotonic_ns()
                kind, at = self._own.at(now)
                if kind == "never":
                    return False
                if kind == "now":
                    return self._own.take(now)
                self._changed.wait((at - now) * 1e-9 if kind == "at" else None)
                self._wakes += 1

    def at(self, now_ns: int) -> tuple[str, int]:
        """When the next start can be, as a clock of the caller's shows nanoseconds: ("now", 0), ("at", ns), ("on call", 0) or
        ("never", 0)."""
        return self._own.at(now_ns)

    def take(self, now_ns: int) -> bool:
        """Starts, where all conditions hold at that time of the caller's clock."""
        return self._own.take(now_ns)

    @property
    def starts(self) -> int:
        return self._own.starts

    @property
    def wakes(self) -> int:
        """How often a wait has been woken, also for nothing."""
        return self._wakes

    def __iter__(self) -> Iterator[int]:
        start = 0
        while self.wait():
            yield start
            start += 1


class Join:
    """Joins packets of several streams by their timestamps, which are ints.

    policy "synced": a set for each time at which some stream has a packet, once all streams have said what they have then; the sets
    depend on the packets alone. "immediate": a set for each packet, as they come. newest: so many packets of a stream wait, and one
    more takes the place of the oldest (0: no limit).
    """

    def __init__(self, streams: int, policy: str = "synced", newest: int = 0) -> None:
        if policy not in ("synced", "immediate"):
            raise _C.ValueError(f"join: policy {policy!r}; must be 'synced' or 'immediate'")
        if newest < 0 or streams < 0:
            raise _C.ValueError(f"join: {streams} streams, the newest {newest}; must not be negative")
        self._own = _C.Join(streams, policy == "immediate", newest)

    def add(self, stream: int, timestamp: int, packet: Any) -> None:
        """A packet of a stream, later than those before it."""
        self._own.add(stream, timestamp, packet)

    def bound(self, stream: int, timestamp: int) -> None:
        """The stream has no packet any more before that time."""
        self._own.bound(stream, timestamp)

    def end(self, stream: int) -> None:
        """The stream has no packet any more."""
        self._own.end(stream)

    def next(self) -> tuple[int, tuple[Any, ...]] | None:
        """(timestamp, packets by stream; None where it has none then); None where there is no set yet."""
        return self._own.next()

    @property
    def ended(self) -> bool:
        """All streams are at their end, and all sets were given."""
        return self._own.ended

    def waiting(self, stream: int) -> int:
        """How many packets of a stream wait."""
        return self._own.waiting(stream)

    def dropped(self, stream: int) -> int:
        """How many packets of a stream have gone because newer ones came."""
        return self._own.dropped(stream)

    def bound_of(self, stream: int) -> int:
        """The time from which on the stream can have packets."""
        return self._own.bound_of(stream)


def join(*streams: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The sets of streams that are iterated over, each of (timestamp, packet): always the one that is furthest behind is asked next, so that
    neither more is read than a set needs, nor who is faster makes a difference."""
    sources: list[Iterator[tuple[int, Any]] | None] = [iter(stream) for stream in streams]
    joined = Join(len(streams))
    while not joined.ended:
        if (found := joined.next()) is not None:
            yield found
            continue
        behind = min((i for i, source in enumerate(sources) if source is not None), key=joined.bound_of)
        source = sources[behind]
        packet = next(source, None) if source is not None else None
        if packet is None:
            sources[behind] = None
            joined.end(behind)
        else:
            joined.add(behind, *packet)
