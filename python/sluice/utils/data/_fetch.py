"""From indices to a batch, in a worker or in the process itself."""

from __future__ import annotations

from typing import Any, Callable

from sluice.utils.data.collate import default_collate
from sluice.utils.data.dataset import IterableDataset, Subset, TensorDataset

NO_INDEX = -1


class EndOfStream(Exception):
    """An iterable dataset has no further batch."""


class Fetcher:
    """`fetch(indices)` gives the batch of a dataset. Raises EndOfStream when an iterable one has ended.

    at: told the index of each sample, or its position in the stream, before it is read.
    """

    def __init__(self, dataset: Any, batched: bool, collate_fn: Callable, drop_last: bool,
                 at: Callable = lambda index: None) -> None:
        self._dataset, self._batched, self._collate, self._drop_last, self._at = dataset, batched, collate_fn, drop_last, at
        self._stream = iter(dataset) if isinstance(dataset, IterableDataset) else None
        self._position = 0

    def fetch(self, indices: Any) -> Any:
        if self._stream is not None:
            return self._collate(self._next_samples(len(indices)) if self._batched else self._next())
        if not self._batched:
            self._at(indices)
            return self._collate(self._dataset[indices])
        if self._collate is default_collate and isinstance(self._dataset, (TensorDataset, Subset)):
            self._at(NO_INDEX)
            batch = self._dataset.collated(indices)
            if batch is not None:
                return batch
        at_once = getattr(self._dataset, "__getitems__", None)
        if callable(at_once):
            self._at(NO_INDEX)
            samples = at_once(indices)
        else:
            samples = []
            for index in indices:
                self._at(index)
                samples.append(self._dataset[index])
        self._at(NO_INDEX)
        return self._collate(samples)

    def _next(self) -> Any:
        self._at(self._position)
        for sample in self._stream:  # at most one
            self._position += 1
            return sample
        raise EndOfStream

    def _next_samples(self, count: int) -> list[Any]:
        samples: list[Any] = []
        try:
            while len(samples) < count:
                samples.append(self._next())
        except EndOfStream:
            if not samples or self._drop_last:
                raise
        return samples
