"""A pipeline at work: its source in a plan, and the iterator that keeps steps of the plan in flight."""

from __future__ import annotations

import collections
import copy
import dataclasses
import time
import weakref
from typing import Any

import numpy as np

from sluice.data._order import Walk
from sluice.data._sources import padded
from sluice.data._tuning import Meter

_CAUSES = {2: "cannot be read", 3: "broken or too large"}  # base/image_call.h
_NAMES = 100  # of bad samples that are kept


def bad_images(status: Any, ids: Any) -> list[tuple[int, str]]:
    """The bad samples of a batch that a kernel has decoded, with causes."""
    return [(int(ids[row]), _CAUSES[int(status[row])]) for row in np.flatnonzero(status > 1).tolist()]


@dataclasses.dataclass(frozen=True)
class Place:
    """A place in the samples of all epochs, and the epoch in which its pass began."""

    begun: int = 0
    epoch: int = 0
    position: int = 0

    def later(self, samples: int, length: int) -> Place:
        epochs, position = divmod(self.position + samples, max(length, 1))
        return Place(self.begun, self.epoch + epochs, position)


class Feed:
    """The source of a plan: the files or rows of the next batch, their keys, and their ids (-1: there is none)."""

    stays = True  # on the stream of sources

    def __init__(self, pipeline: Any, place: Place, counts: bool = False) -> None:
        """counts: bad samples count when they are made; else whoever hands out batch n, from 1 on, takes them from bad[n]."""
        self.__name__ = "input"
        self.counts = counts
        self.bad: dict[int, list[tuple[int, str]]] = {}
        self._pipeline, self._source = pipeline, copy.copy(pipeline._source)  # which may be in the middle of batches elsewhere
        self.meter = Meter() if pipeline._tuning is not None and not counts else None
        if pipeline._tuning is not None:
            pipeline._tuning.set_workers(self._source)
        self.start(place)

    def start(self, place: Place) -> None:
        """Where the next batch begins."""
        p, self.place = self._pipeline, place
        self._walk = Walk(p._order, place.epoch, place.position)
        self._left = p._left(place)
        self._source.begin(self._coming(copy.copy(self._walk), self._left), p._policy)
        self._steps = 0
        self.bad.clear()

    def reset(self) -> None:
        """The next pass, when a graph begins anew."""
        self.start(self._pipeline._pass_after(self.place))

    def _coming(self, walk: Any, left: Any) -> Any:
        """The ids and keys of all batches to come, for sources that make them ahead of time."""
        while (step := self._step(walk, left)) is not None:
            ids, keys, left = step
            yield ids, keys

    def _step(self, walk: Any, left: Any) -> Any:
        p = self._pipeline
        n = p._size if left is None else min(p._size, left)
        if n < p._size and (p._drop_last or n == 0):
            return None
        ids, keys = walk.next(n)
        return None if not len(ids) else (ids, keys, None if left is None else left - len(ids))

    def __call__(self) -> Any:
        step = self._step(self._walk, self._left)
        if step is None:
            raise StopIteration
        ids, keys, self._left = step
        size, self._steps = self._pipeline._size, self._steps + 1
        begin, busy = time.perf_counter(), time.thread_time()
        arrays = self._source.read(ids, size)
        if self.meter is not None:
            self.meter.reads.append((time.perf_counter() - begin, time.thread_time() - busy, self._source.spent()))
        rows, bad = self._source.settled()
        if bad:
            self.bad[self._steps] = [(int(ids[row]), cause) for row, cause in bad]
            ids, keys = ids[rows], keys[rows]
            if self.counts:
                self._pipeline._count(self.bad.pop(self._steps))
        whole = np.full(size, -1, np.int64)
        whole[:len(ids)] = ids
        return (*arrays, padded(keys, size), whole)


class Errors:
    """Bad samples: how many of each cause, and the first hundred names."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.names: list[str] = []

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, cause: str, name: str) -> None:
        self.counts[cause] = self.counts.get(cause, 0) + 1
        if len(self.names) < _NAMES:
            self.names.append(f"{name}: {cause}")

    def __repr__(self) -> str:
        told = ", ".join(f"{n} {cause}" for cause, n in sorted(self.counts.items()))
        return f"Errors({told or 'none'})"


class Plan:
    """The pipeline as a graph of its own. It belongs to the pipeline and does not keep it: the session has the source, and no collector of
    garbage looks into sessions."""

    def __init__(self, pipeline: Any, place: Place, cores: int | None = None) -> None:
        from sluice.nn import Graph

        owner = weakref.proxy(pipeline)

        class Input(Graph):
            def build(self) -> Any:
                return owner._traced(feed, owner._metered())

        self.feed = feed = Feed(owner, place)
        self.graph = Input(name="input")
        self.graph.config.set_cores(cores or pipeline._cores())  # the source computes next to nothing, and needs no core of its own
        self.flying: collections.deque[Any] = collections.deque()

    def start(self, place: Place) -> None:
        """The next step begins there; those that nobody will ask for are waited for."""
        while self.flying:
            try:
                self.flying.popleft()[-1].numpy()
            except Exception:  # noqa: BLE001, S110 told to whoever would have asked
                pass
        self.feed.start(place)

    def end(self) -> None:
        """Waits for its steps, and ends workers; another plan takes its place."""
        self.start(self.feed.place)
        self.feed._source.begin(iter(()), "raise")
        self.graph.close()


class Iterator:
    """Batches of one pass; a few steps are in work ahead of the one that is asked for."""

    def __init__(self, pipeline: Any, plan: Plan) -> None:
        self._pipeline, self._plan, self.ended = pipeline, plan, False
        left = pipeline._left(pipeline._place)
        self._steps = None if left is None else pipeline._batches(left)  # that are not submitted yet
        self._handed_out = 0

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        p, meter = self._pipeline, self._plan.feed.meter
        if meter is not None:
            meter.asked()
        while True:
            flying = self._plan.flying
            while not self.ended and len(flying) < p._ahead() + 1 and self._steps != 0:
                flying.append(self._plan.graph())
                self._steps = None if self._steps is None else self._steps - 1
            if self.ended or not flying:
                raise StopIteration
            results = flying.popleft()
            self._handed_out += 1
            epoch = p._place.epoch
            p._place = p._place.later(self._samples(), p._order.length)
            batch = self._handed(results)
            if meter is not None:
                meter.handed_out()
                if p._place.epoch != epoch and self._steps != 0 and p._retuned():
                    self._go_on()
            if batch is not None:
                return batch

    def _go_on(self) -> None:
        """With another plan, from the place that the pipeline has now."""
        p = self._pipeline
        left = p._left(p._place)
        self._plan, self._handed_out = p._plan, 0
        self._steps = None if left is None else p._batches(left)
        self._plan.start(p._place)

    def _samples(self) -> int:
        left = self._pipeline._left(self._pipeline._place)
        return self._pipeline._size if left is None else min(self._pipeline._size, left)

    def _handed(self, results: Any) -> Any:
        """The batch as its user gets it; None where no row of it is left."""
        p = self._pipeline
        *values, ids = results
        rows = int((ids.numpy() >= 0).sum())
        bad = self._plan.feed.bad.pop(self._handed_out, [])
        if p._decodes:
            *values, status, source = values
            bad += bad_images(status.numpy(), ids.numpy())
            rows = int((source.numpy() >= 0).sum())
        p._count(bad)
        if rows == 0:
            return None
        if rows < p._size:
            values = [value[:rows] for value in values]
        if p._ragged and not p._stages:
            longest = int(values[1].max())
            p._longest = max(p._longest, longest)
            values[0] = values[0][:, :max(longest, 1)]
        return values[0] if len(values) == 1 else tuple(values)
