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

    def __init__(self, graph: Any, weight: float, bytes: int, leases: Any, number: int) -> None:
        self.graph, self.weight, self.name, self.bytes = graph, weight, graph.name, bytes
        self._leases, self._number = leases, number
        self._asking = threading.Lock()  # one request at a time is on its way to its place
        self._requests: collections.deque[Any] = collections.deque()  # those that wait for a turn, and then the one on its way

    def submit(self, *args: Any) -> Any:
        """Asks for a step with these inputs; a concurrent.futures.Future of its results. Waits while `queue` steps are waiting already."""
        future: Any = concurrent.futures.Future()
        with self._asking:
            self._requests.append((future, args))  # a turn may come at once
            asked = False
            try:
                asked = self._leases.ask(self._number)
            finally:
                if not asked:
                    self._requests.pop()
        if not asked:
            raise _C.RuntimeError("DeviceShares: it was closed; make another one")
        return future

    def __call__(self, *args: Any) -> Any:
        """The results of a step with these inputs."""
        return self.submit(*args).result()

    def _step(self, clock: Callable[[], float]) -> None:
        """Does in its turn what was asked for first."""
        future, args = self._requests.popleft()
        if not future.set_running_or_notify_cancel():
            self._leases.give_back(self._number, 0.0, False)
            return
        results, failure, began = None, None, clock()
        try:
            results = self.graph(*args)
            self.graph.synchronize()
        except BaseException as error:  # the step's, for whoever asked for it
            failure = error
        self._leases.give_back(self._number, clock() - began)
        if failure is None:
            future.set_result(results)
        else:
            future.set_exception(failure)


class DeviceShares:
    """Graphs that share a device. Before one is let in, its plan is proven to run for ever, as any plan is, and its memory, which is known
    before the first step, must fit beside that of the others: else it is refused with the numbers, and the others are as before.

    A step needs a turn on the device. It goes to the graph that has had the least time for its weight, of those with steps waiting. So
    graphs that always have some get the time of the device by their weights, and nobody waits for one that has none. A graph that comes
    back gets no time for what it has missed. The leases of the engine keep the account (memory/time_lease.h).

    memory: bytes of all plans together, or a text with a unit.
    clock: returns seconds, for what a step is counted; another one makes tests exact.
    start: whether steps run at once; else from start() on.
    """

    def __init__(self, memory: Any, *, clock: Callable[[], float] = time.perf_counter, start: bool = True) -> None:
        self.memory = bytes_of("DeviceShares: memory", memory)
        self._clock, self._members = clock, []  # type: ignore[var-annotated]
        self._leases, self._adding = _C.TimeLeases(), threading.Lock()
        self._closed = False
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
        with self._adding:
            return self._add(graph, inputs, float(weight), queue)

    def _add(self, graph: Any, inputs: Any, weight: float, queue: int) -> Member:
        if self._closed:
            raise _C.RuntimeError("DeviceShares: it was closed; make another one")
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
        needs = graph.memory()["total"]
        if needs > left:
            graph.close()
            raise _C.MemoryError(f"DeviceShares: {graph.name}: needs {needs:,} bytes; {left:,} of {self.memory:,} are left (in use: {held})")
        self._members.append(Member(graph, weight, needs, self._leases, self._leases.add(weight, queue)))  # of the number that it has there
        return self._members[-1]

    def _run(self) -> None:
        while (number := self._leases.take()) is not None:
            self._members[number]._step(self._clock)

    def stats(self) -> dict[str, dict[str, float]]:
        """For each graph its weight, bytes, steps, and the seconds and share of the time that it has had."""
        shares = self._leases.shares()
        whole = sum(share["seconds"] for share in shares) or 1.0
        return {member.name: {"weight": member.weight, "bytes": member.bytes, "steps": share["turns"], "seconds": share["seconds"],
                              "share": share["seconds"] / whole, "waiting": share["waiting"]}
                for member, share in zip(self._members, shares)}

    def close(self) -> None:
        """Runs what waits, and ends. Graphs stay as they are. Nothing the second time."""
        self._closed = True
        self._leases.close()
        if self._thread.is_alive():
            self._thread.join()
        for member in self._members:
            while member._requests:  # it was never started
                member._requests.popleft()[0].cancel()

    def __enter__(self) -> DeviceShares:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
