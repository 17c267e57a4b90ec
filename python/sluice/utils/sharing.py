"""Several graphs on one device, within one bound of memory, each with its share of the time.

    device = DeviceShares(memory="2GiB")
    train = device.add(train_graph, x, y, weight=70)
    serve = device.add(serve_graph, x, weight=30)
    losses = [train.submit(x, y) for x, y in batches]   # futures
    print(device.stats())
"""

from __future__ import annotations

import collections
import concurrent.futures
import threading
import time
from typing import Any, Callable

from sluice import _C
from sluice._graph.config import bytes_of

__all__ = ["DeviceShares", "Member"]


class Member:
    """A graph of a DeviceShares; its add() makes it."""

    def __init__(self, shares: DeviceShares, graph: Any, weight: float, queue: int) -> None:
        self.graph, self.weight, self.name = graph, weight, graph.name
        self.bytes = graph.memory()["total"]
        self.steps, self.seconds = 0, 0.0
        self._shares, self._room = shares, queue
        self._due = 0.0  # the time that it has had, over its weight; who is least goes next
        self._waiting: collections.deque[Any] = collections.deque()

    def submit(self, *args: Any) -> Any:
        """Asks for a step with these inputs; a concurrent.futures.Future of its results. Waits while `queue` steps are waiting already."""
        return self._shares._submit(self, args)

    def __call__(self, *args: Any) -> Any:
        """The results of a step with these inputs."""
        return self.submit(*args).result()


class DeviceShares:
    """Graphs that share a device. Before one is let in, its plan is proven to run for ever, as any plan is, and its memory, which is known
    before the first step, must fit beside that of the others: else it is refused with the numbers, and the others are as before.

    A step needs a credit, and one credit goes round. It goes to the graph that has had the least time for its weight, of those with steps
    waiting. So graphs that always have some get the time of the device by their weights, and nobody waits for one that has none. A
    graph that comes back gets no time for what it has missed.

    memory: bytes of all plans together, or a text with a unit.
    clock: returns seconds, for what a step is counted; another one makes tests exact.
    start: whether steps run at once; else from start() on.
    """

    def __init__(self, memory: Any, *, clock: Callable[[], float] = time.perf_counter, start: bool = True) -> None:
        self.memory = bytes_of("DeviceShares: memory", memory)
        self._clock, self._members = clock, []  # type: ignore[var-annotated]
        self._changed = threading.Condition()
        self._closed = False
        self._now = 0.0  # the _due of the graph that had the credit last
        self._thread = threading.Thread(target=self._run, name="sluice-shares", daemon=True)
        if start:
            self.start()

    def start(self) -> None:
        """Lets steps run. Nothing the second time."""
        if not self._thread.is_alive() and not self._closed:
            self._thread.start()

    def add(self, graph: Any, *inputs: Any, weight: float = 1, queue: int = 8) -> Member:
        """Lets a graph in, compiled for inputs like these. MemoryError says what the others have, what it needs and what is left.

        weight: its share of the time, against those of the others. queue: steps that may wait; more make submit() wait.
        """
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < float("inf"):
            raise _C.ValueError(f"DeviceShares: weight: got {weight!r}; must be a positive number")
        if isinstance(queue, bool) or not isinstance(queue, int) or queue < 1:
            raise _C.ValueError(f"DeviceShares: queue: got {queue!r}; must be an int of at least 1")
        if any(member.graph is graph for member in self._members):
            raise _C.ValueError(f"DeviceShares: graph '{graph.name}' is in already; each has one share")
        left = self.memory - sum(member.bytes for member in self._members)
        held = ", ".join(f"'{member.name}' {member.bytes:,}" for member in self._members) or "nobody"
        try:
            if left <= 0:
                raise _C.MemoryError(f"plan '{graph.name}': nothing is left for it")
            graph.compile(*inputs, memory=left)
        except MemoryError as error:
            raise _C.MemoryError(f"DeviceShares: {graph.name}: {left:,} of {self.memory:,} bytes are left (in use: {held}): {error}") from None
        member = Member(self, graph, float(weight), queue)
        if member.bytes > left:
            graph.close()
            raise _C.MemoryError(f"DeviceShares: {graph.name}: needs {member.bytes:,} bytes; {left:,} of {self.memory:,} are left (in use: {held})")
        with self._changed:
            self._check_open()
            member._due = self._now
            self._members.append(member)
        return member

    def _check_open(self) -> None:
        if self._closed:
            raise _C.RuntimeError("DeviceShares: it was closed; make another one")

    def _submit(self, member: Member, args: Any) -> Any:
        future: Any = concurrent.futures.Future()
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(member._waiting) < member._room)
            self._check_open()
            if not member._waiting:
                member._due = max(member._due, self._now)
            member._waiting.append((future, args))
            self._changed.notify_all()
        return future

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or any(member._waiting for member in self._members))
                ready = [member for member in self._members if member._waiting]
                if not ready:
                    return
                chosen = min(ready, key=lambda member: member._due)
                future, args = chosen._waiting.popleft()
                self._now = max(self._now, chosen._due)
                self._changed.notify_all()
            if not future.set_running_or_notify_cancel():
                continue
            began = self._clock()
            try:
                results = chosen.graph(*args)
                chosen.graph.synchronize()
            except BaseException as error:  # the step's, for whoever asked for it
                results, failure = None, error
            else:
                failure = None
            with self._changed:
                spent = self._clock() - began
                chosen.steps, chosen.seconds = chosen.steps + 1, chosen.seconds + spent
                chosen._due += spent / chosen.weight
            if failure is None:
                future.set_result(results)
            else:
                future.set_exception(failure)

    def stats(self) -> dict[str, dict[str, float]]:
        """For each graph its weight, bytes, steps, and the seconds and share of the time that it has had."""
        with self._changed:
            whole = sum(member.seconds for member in self._members) or 1.0
            return {member.name: {"weight": member.weight, "bytes": member.bytes, "steps": member.steps, "seconds": member.seconds,
                                  "share": member.seconds / whole, "waiting": len(member._waiting)} for member in self._members}

    def close(self) -> None:
        """Runs what waits, and ends. Graphs stay as they are. Nothing the second time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        for member in self._members:
            while member._waiting:  # it was never started
                member._waiting.popleft()[0].cancel()

    def __enter__(self) -> DeviceShares:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
