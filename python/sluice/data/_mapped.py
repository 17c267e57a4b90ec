"""Samples that a function of Python makes, in this process or in workers."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Iterator

import numpy as np

from sluice._C import Tensor
from sluice.data._sources import Source, dtype_of, padded


def _arrays(sample: Any) -> list[Any]:
    """A sample's parts as arrays; numbers of Python as torch's collate makes them, float32 and int64."""
    parts = sample if isinstance(sample, (tuple, list)) else (sample,)
    arrays = []
    for part in parts:
        array = part.numpy() if isinstance(part, Tensor) else np.asarray(part)
        if isinstance(part, float):
            array = array.astype(np.float32)
        if array.dtype == object or array.dtype.kind in "USV":
            raise TypeError(f"data: a sample has {type(part).__name__}; must be arrays and numbers; map() may make them")
        arrays.append(array)
    return arrays


class _Samples:
    """The dataset of a loader: samples by (id, first half of the key), so that workers need nothing else."""

    def __init__(self, source: Source, fn: Callable[..., Any] | None) -> None:
        self.source, self.fn = source, fn
        self.random = fn is not None and "rng" in inspect.signature(fn).parameters

    def __getitem__(self, place: tuple[int, int]) -> list[Any]:
        i, key = place
        sample = self.source.sample(i)
        if self.fn is not None:
            whole = (key & (2**64 - 1)) << 64 | (i & (2**64 - 1))
            options = {"rng": np.random.Generator(np.random.Philox(key=whole))} if self.random else {}
            sample = self.fn(sample, **options)
        return _arrays(sample)

    def __len__(self) -> int:
        return self.source.count


def _stacked(samples: list[list[Any]]) -> list[Any]:
    first = samples[0]
    for k, sample in enumerate(samples):
        if [(a.shape, a.dtype) for a in sample] != [(a.shape, a.dtype) for a in first]:
            raise ValueError(f"data: sample {k} of a batch has {_told(sample)}, the first {_told(first)}; all must be alike")
    return [np.stack(parts) for parts in zip(*samples)]


def _told(sample: list[Any]) -> str:
    return ", ".join(f"{a.dtype}{a.shape}" for a in sample) or "no parts"


class Mapped(Source):
    """fn of each sample of another source. Workers make batches ahead of time, and in order."""

    def __init__(self, source: Source, fn: Callable[..., Any] | None, workers: int, seed: int) -> None:
        if fn is not None and not callable(fn):
            raise TypeError(f"map: {type(fn).__name__}; must be a function")
        if workers < 0:
            raise ValueError(f"map: {workers} workers; must not be negative")
        if isinstance(source, Mapped) and fn is not None:
            inner, before = source, source._samples
            source = inner._inner
            fn, workers = _Chained(before, fn), max(workers, inner._workers)
        self._inner, self._workers, self._samples = source, workers, _Samples(source, fn)
        self.count, self.fingerprint = source.count, source.fingerprint
        self._kinds: Any = None
        self._batches: Any = None

    def _parts(self) -> list[tuple[tuple[int, ...], Any]]:
        if self._kinds is None:
            self._kinds = [(a.shape, a.dtype) for a in self._samples[(0, 0)]]
        return self._kinds

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return [((batch, *shape), dtype_of(dtype, "data.map")) for shape, dtype in self._parts()]

    def name(self, i: int) -> str:
        return self._inner.name(i)

    def sample(self, i: int) -> Any:
        return tuple(self._samples[(i, 0)])

    def begin(self, coming: Iterator[tuple[Any, Any]]) -> None:
        from sluice.utils.data import DataLoader

        places = (list(zip(ids.tolist(), keys[:, 0].tolist())) for ids, keys in coming)
        if not self._workers:
            self._batches = (_stacked([self._samples[place] for place in batch]) for batch in places)
            return
        self._parts()
        self._batches = None  # workers of another place end first
        loader = DataLoader(self._samples, batch_sampler=_Once(places), num_workers=self._workers, collate_fn=_stacked)
        self._batches = iter(loader)

    def read(self, ids: Any, batch: int) -> list[Any]:
        arrays = next(self._batches, None)
        if arrays is None:
            raise RuntimeError("data.map: the workers have no more batches")
        kinds = self._parts()
        if [(a.shape[1:], a.dtype) for a in arrays] != kinds:
            raise ValueError(f"data.map: samples of {_told([a[0] for a in arrays])}; sample 0 has {kinds}; all must be alike")
        return [padded(array, batch) for array in arrays]


class _Chained:
    """One function behind another, each with the sample's own random numbers."""

    def __init__(self, first: _Samples, second: Callable[..., Any]) -> None:
        self._first, self._second = first, second
        self._random = "rng" in inspect.signature(second).parameters

    def __call__(self, sample: Any, rng: Any) -> Any:
        first = self._first
        if first.fn is not None:
            sample = first.fn(sample, rng=rng) if first.random else first.fn(sample)
        return self._second(sample, rng=rng) if self._random else self._second(sample)


class _Once:
    """A sampler of batches that are there once."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self._batches
