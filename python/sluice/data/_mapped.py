"""Samples that a function of Python makes, in this process or in workers."""

from __future__ import annotations

import atexit
import collections
import inspect
import itertools
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import numpy as np

from sluice._C import Tensor
from sluice.data._sources import Source, dtype_of, padded
from sluice.data._tuning import START_SECONDS, Spent, own_bytes
from sluice.utils.data.collate import stacked

_TRIED = 10  # samples that are asked what samples are like
_program_ends = threading.Event()
atexit.register(_program_ends.set)


def arrays_of(sample: Any) -> list[Any]:
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


def _told(kinds: Any) -> str:
    return ", ".join(f"{dtype}{shape}" for shape, dtype in kinds) or "no parts"


def _kinds_of(out: Any) -> list[tuple[tuple[int, ...], Any]]:
    """Shapes and NumPy's dtypes of what `out=` declares: (shape, dtype), or a list of such."""
    try:
        pairs = [out] if isinstance(out, tuple) else list(out)
        return [(tuple(int(n) for n in shape), np.dtype(getattr(dtype, "name", dtype))) for shape, dtype in pairs]
    except (TypeError, ValueError):
        raise TypeError(f"map: out: {out!r}; must be (shape, dtype) of a sample's array, or a list of them") from None


class _Sample(int):
    """A sample's number, with the key of its epoch and, where it must not be made again, the cause."""

    key = 0
    cause = ""

    def __reduce__(self) -> Any:
        return _sample, (int(self), self.key, self.cause)


def _sample(i: int, key: int, cause: str = "") -> _Sample:
    sample = _Sample(i)
    sample.key, sample.cause = key, cause
    return sample


class _Bad:
    """The place of a sample that could not be made."""

    def __init__(self, cause: str) -> None:
        self.cause = cause


def standing(count: int, bad: list[tuple[int, str]], policy: str) -> list[int]:
    """Which sample of a batch stands in each row, once bad ones are replaced by the next good one, or left out."""
    left = {k for k, _ in bad}
    good = [k for k in range(count) if k not in left]
    if not bad or policy == "skip":
        return good
    if not good:
        raise ValueError(f"data.map: all {count} samples of a batch are bad, the first by {bad[0][1]}; there is none to replace them")
    return [min(good, key=lambda g: (g - k) % count) for k in range(count)]


class _Maker:
    """The dataset of a loader, and what puts its samples into batches: all that workers need."""

    def __init__(self, source: Source, kinds: Any, policy: str) -> None:
        self._source, self._kinds, self._policy = source, kinds, policy
        self._seconds = self._busy = 0.0  # since the last batch
        self._batches = 0

    def __len__(self) -> int:
        return self._source.count

    def __getitem__(self, sample: _Sample) -> Any:
        begin, busy = time.perf_counter(), time.thread_time()
        try:
            return self._tried(sample)
        finally:
            self._seconds += time.perf_counter() - begin
            self._busy += time.thread_time() - busy

    def _tried(self, sample: _Sample) -> Any:
        if self._policy == "raise":
            return self._made(sample)
        try:
            return self._made(sample)
        except _Lost as error:
            return _Bad(str(error))
        except Exception as error:  # noqa: BLE001 the policy says what becomes of it
            return _Bad(type(error).__name__)

    def _made(self, sample: _Sample) -> list[Any]:
        if sample.cause:
            raise _Lost(sample.cause)
        arrays = arrays_of(self._source.sample(int(sample), sample.key))
        kinds = [(a.shape, a.dtype) for a in arrays]
        if kinds != self._kinds:
            raise ValueError(f"data.map: {self._source.name(int(sample))} is {_told(kinds)}; must be {_told(self._kinds)} as the others are; "
                             "padded_batch() takes samples of other lengths")
        return arrays

    def batch(self, samples: list[Any]) -> tuple[list[Any], list[int], list[tuple[int, str]], Spent]:
        """Arrays with a row for each sample, which sample stands in each row, which are bad, with causes, and what was spent."""
        bad = [(k, sample.cause) for k, sample in enumerate(samples) if isinstance(sample, _Bad)]
        rows = standing(len(samples), bad, self._policy)
        arrays = [stacked(parts) for parts in zip(*(samples[k] for k in rows))]
        return arrays or [np.zeros((0, *shape), dtype) for shape, dtype in self._kinds], rows, bad, self._spent()

    def _spent(self) -> Spent:
        from sluice.utils.data import get_worker_info

        self._batches += 1
        told = get_worker_info() is not None and self._batches in (2, 8, 32)  # the system takes a while to count
        spent = Spent(self._seconds, self._busy, own_bytes() if told else 0)
        self._seconds = self._busy = 0.0
        return spent

    def make(self, samples: list[_Sample]) -> Any:
        made = []
        for sample in samples:
            if _program_ends.is_set():  # nobody asks for this batch any more, and the end would wait for all of it
                raise RuntimeError("data.map: the program ends")
            made.append(self[sample])
        return self.batch(made)


class _Lost(RuntimeError):
    """A sample whose worker was lost twice."""


class _Ahead:
    """Batches that workers make ahead of time, in order. If a worker is lost, by death or because it takes too long, all are started again
    and go on with the batches that were not handed out; a sample that has cost two workers is bad."""

    def __init__(self, maker: _Maker, coming: Iterator[list[_Sample]], workers: int, timeout: float) -> None:
        self._maker, self._coming, self._workers, self._timeout = maker, coming, workers, timeout
        self._asked: collections.deque[list[_Sample]] = collections.deque()
        self._lost: set[int] = set()
        self._start()

    def _start(self) -> None:
        from sluice.utils.data import DataLoader

        self._batches: Any = None  # workers of before end first
        again = list(self._asked)
        loader = DataLoader(self._maker, batch_sampler=_Once(itertools.chain(again, self._noted())), num_workers=self._workers,
                            collate_fn=self._maker.batch, timeout=self._timeout)
        self._batches = iter(loader)

    def _noted(self) -> Iterator[list[_Sample]]:
        for samples in self._coming:
            self._asked.append(samples)
            yield samples

    def __next__(self) -> Any:
        from sluice.utils.data._workers import WorkerLost

        while True:
            try:
                batch = next(self._batches)
            except WorkerLost as error:
                self._restart(error)
                continue
            except StopIteration:
                raise
            except Exception:
                self._asked.popleft()
                raise
            self._asked.popleft()
            return batch

    def _restart(self, error: Any) -> None:
        if error.index in self._lost:
            if error.index < 0:
                raise error
            for samples in self._asked:
                for k, sample in enumerate(samples):
                    if sample == error.index:
                        samples[k] = _sample(int(sample), sample.key, f"cost two workers, which {error.how}")
        else:
            self._lost.add(error.index)
            warnings.warn(f"data.map: {error}; workers are started again, and go on there", stacklevel=2)
        self._start()


class _Once:
    """A sampler of batches that are there once."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self._batches


class Mapped(Source):
    """fn of each sample of another source; without fn its samples themselves. Workers make batches ahead of time, and in order."""

    def __init__(self, source: Source, fn: Callable[..., Any] | None = None, workers: int = 0, out: Any = None, timeout: float = 0) -> None:
        if fn is not None and not callable(fn):
            raise TypeError(f"map: {type(fn).__name__}; must be a function")
        if workers < 0:
            raise ValueError(f"map: {workers} workers; must not be negative")
        if timeout < 0:
            raise ValueError(f"map: timeout: {timeout}; must be seconds, or 0 for no limit")
        self._inner, self._fn, self.workers = source, fn, max(workers, source.workers)
        self._depth = source._depth + 1 if isinstance(source, Mapped) else 0
        self._timeout = max(timeout, source._timeout) if isinstance(source, Mapped) else timeout
        self._takes_rng = fn is not None and "rng" in parameters_of(fn)
        self.random = self._takes_rng or source.random
        self.count = source.count
        self.fingerprint = source.fingerprint
        self._kinds = None if out is None else _kinds_of(out)
        self._coming: Any = None
        self._batches: Any = None
        self._settled: Any = (None, [])
        self._last = Spent()
        self.start_seconds = START_SECONDS  # of a worker

    def digest(self) -> str:
        return self._inner.digest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None, "_coming": None}

    @property
    def calls(self) -> bool:
        """Whether there is something of Python that workers could call: a function, or samples that it makes one by one."""
        return self._fn is not None or not self._inner.direct

    def known_kinds(self) -> list[tuple[tuple[int, ...], Any]]:
        """Shapes and dtypes of a sample's parts: those of the first that can be made."""
        if self._kinds is None:
            with ThreadPoolExecutor(1) as apart:  # the thread that asks may trace a graph, of which the function's ops are no part
                self._kinds = apart.submit(self._first_kinds).result()
        return self._kinds

    def _first_kinds(self) -> list[tuple[tuple[int, ...], Any]]:
        first: Exception | None = None
        for i in range(min(self.count, _TRIED)):
            try:
                return [(a.shape, a.dtype) for a in arrays_of(self.sample(i))]
            except Exception as error:  # noqa: BLE001 the batch with it will say so
                first = first or error
        raise first or ValueError("data: there are no samples, so what map() gives is unknown; out= may say so")

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return [((batch, *shape), dtype_of(dtype, "data.map")) for shape, dtype in self.known_kinds()]

    def name(self, i: int) -> str:
        return self._inner.name(i)

    def sample(self, i: int, key: int = 0) -> Any:
        sample = self._inner.sample(i, key)
        if self._fn is None:
            return sample
        if not self._takes_rng:
            return self._fn(sample)
        whole = (key & (2**64 - 1)) << 64 | (i & (2**64 - 1))
        return self._fn(sample, rng=np.random.Generator(np.random.Philox(key=whole, counter=[0, 0, 0, self._depth])))

    def begin(self, coming: Iterator[tuple[Any, Any]], policy: str) -> None:
        self._coming, self._policy, self._batches = coming, policy, None  # workers of another place end

    def _made(self) -> Any:
        """The batches, which are begun by whoever reads the first: a graph that is traced is no place for that."""
        maker = _Maker(self, self.known_kinds(), self._policy)
        batches = ([_sample(i, key) for i, key in zip(ids.tolist(), keys[:, 0].tolist())] for ids, keys in self._coming)
        return _Ahead(maker, batches, self.workers, self._timeout) if self.workers else map(maker.make, batches)

    def read(self, ids: Any, batch: int) -> list[Any]:
        begin = None
        if self._batches is None:
            begin, self._batches = time.perf_counter(), self._made()
        got = next(self._batches, None)
        if got is None:
            raise RuntimeError("data.map: the workers have no more batches")
        if begin is not None and self.workers:
            self.start_seconds = max(time.perf_counter() - begin - got[-1].seconds, 0.0) / self.workers
        arrays, rows, bad, self._last = got
        self._settled = (np.array(rows, np.int64), bad) if bad else (None, [])
        return [padded(array, batch) for array in arrays] if batch else arrays

    def made_now(self, i: int, policy: str) -> Any:
        """The arrays of a sample, made here; where it is bad and the policy is not to raise, the cause."""
        made = _Maker(self, self.known_kinds(), policy)[_sample(i, 0)]
        return made.cause if isinstance(made, _Bad) else made

    def settled(self) -> tuple[Any, list[tuple[int, str]]]:
        return self._settled

    def spent(self) -> Spent:
        return self._last


def parameters_of(fn: Callable[..., Any]) -> Any:
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return {}  # of a built-in function
