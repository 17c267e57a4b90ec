"""A pipeline as a graph of its own that needs no Python: sources whose samples are files or arrays, in an order that is arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from sluice import _C
from sluice._tensor.creation import tensor
from sluice.data._order import Chosen
from sluice.data._running import Place
from sluice.data._stages import Batch
from sluice.nn import Graph, Module


def graph_of(pipeline: Any, place: Place, name: str) -> Graph:
    """The graph of Pipeline.as_graph(), which begins at `place`."""
    order, tables = pipeline._order, pipeline._source.tables()
    if tables is None:
        raise TypeError(f"data: {type(pipeline._source).__name__.lower()}: Python makes these samples, and a saved pipeline runs without; must be "
                        "images, records, tar or arrays, with functions behind batch()")
    if order.torchs is not None or order.buckets is not None or not isinstance(order.inner, (Chosen, type(None))):
        raise ValueError("data: torch's order, interleave() or bucket(), which Python computes; a saved pipeline has shuffle(), shard(), skip(), "
                         "take() and filter()")
    if pipeline._policy == "skip":
        raise ValueError("data: on_error('skip') makes batches smaller, and plans have fixed sizes; use 'replace'")
    if order.length == 0:
        raise ValueError("data: an epoch without samples; a saved pipeline must have at least one")
    if order.inner is not None:
        tables["chosen"] = order.inner.ids(0, np.arange(order.count))
    begin = place.epoch * order.length + place.position
    end = -1 if pipeline._epochs is None else (place.begun + pipeline._epochs) * order.length
    if pipeline._drop_last and end >= 0:
        end -= (end - begin) % pipeline._size
    return _Input(pipeline, tables, begin, end, name)


class _Tables(Module):
    """What a plan has of the samples, and its place: how many of them came before."""

    def __init__(self, tables: dict[str, Any], place: int) -> None:
        super().__init__()
        for name, table in tables.items():
            self.register_buffer(name, tensor(np.ascontiguousarray(table)))
        self.register_buffer("place", tensor(place, dtype=_C.int64))


class _Input(Graph):
    def __init__(self, pipeline: Any, tables: dict[str, Any], begin: int, end: int, name: str) -> None:
        super().__init__(name=name)
        self._pipeline, self._end = pipeline, end
        self.tables = _Tables(tables, begin)

    def build(self) -> tuple[Any, ...]:
        p, tables = self._pipeline, self.tables
        order, size = p._order, p._size
        seed = int(np.uint64(order.seed & 2**64 - 1).view(np.int64))
        ids, keys = _C.ops.sample_order(tables.place, size=size, count=order.count, length=order.length, whole=order.whole, skipped=order.skipped,
                                        rank=order.rank, world=order.world, seed=seed, shuffled=order.shuffled, end=self._end)
        tables.place.add_(size)
        there = ids >= 0
        if order.inner is not None:
            ids = _C.fn.where(there, tables.chosen[ids.clamp(min=0)], -1)
            keys = _C.fn.stack([keys[:, 0], ids.clamp(min=0)], 1)
        batch = Batch(p._source.gathered(tables, ids.clamp(min=0), there), keys, ids, whole=self._end < 0 or p._drop_last)
        for number, stage in enumerate(p._stages):
            stage.apply(batch, p._policy, number)
        return (*batch.values, ids)
