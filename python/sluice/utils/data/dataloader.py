"""DataLoader: batches of a dataset, made in this process or by workers."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import multiprocessing.context
import os
import warnings
from numbers import Integral
from typing import Any, Callable, Generic, Iterator, TypeVar

from sluice.errors import NotImplementedError, RuntimeError, TypeError, ValueError  # noqa: A004
from sluice.utils.data._fetch import EndOfStream, Fetcher
from sluice.utils.data._worker import WorkerInfo as WorkerInfo, get_worker_info as get_worker_info
from sluice.utils.data.collate import Recycled, default_collate, default_convert, outputs
from sluice.utils.data.dataset import IterableDataset
from sluice.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed

T_co = TypeVar("T_co", covariant=True)

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _Endless:
    """The "indices" of a stream."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class _Position:
    """How far an iteration is. The loader has it until another iteration begins, also when the iterator is gone."""

    def __init__(self, base_seed: int, batches: Any) -> None:
        self.base_seed, self.batches = base_seed, iter(batches)  # of indices that nobody has begun with
        self.begun: dict[int, Any] = {}  # of batches that workers make, or have made, and that were not given
        self.finished = False  # the iterator has said so

    def pending(self) -> list[Any]:
        """The indices of the batches that were not given, in order; drains the sampler."""
        self.batches = iter(rest := list(self.batches))
        return [self.begun[task] for task in sorted(self.begun)] + rest


class DataLoader(Generic[T_co]):
    """Iterates over batches of `dataset`; torch.utils.data.DataLoader.

    With `num_workers` processes, arrays of batches come in shared memory. Batches come in the order of the sampler for any
    number of workers (unless in_order=False); worker i has the seed base_seed + i for Python's, NumPy's and Sluice's generators.

    multiprocessing_context: "fork", "spawn", "forkserver" or a context; Python's default otherwise. Workers of fork() have the
    dataset without a pickle; what they call must be eager (docs/reliability.md).
    pin_memory: accepted; copies to a device go through pinned memory of the engine.
    """

    dataset: Any
    _initialized = False

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, sampler: Any = None,
                 batch_sampler: Any = None, num_workers: int = 0, collate_fn: Callable | None = None, pin_memory: bool = False,
                 drop_last: bool = False, timeout: float = 0, worker_init_fn: Callable | None = None,
                 multiprocessing_context: Any = None, generator: Any = None, *, prefetch_factor: int | None = None,
                 persistent_workers: bool = False, pin_memory_device: str = "", in_order: bool = True) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self._streams = isinstance(dataset, IterableDataset)
        if self._streams:
            for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                                     f"{name}={value!r:.80}")
        shuffle = bool(shuffle)
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("DataLoader: batch_sampler option is mutually exclusive with batch_size, shuffle, "
                                 "sampler, and drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("DataLoader: batch_size=None option disables auto-batching and is mutually exclusive with "
                             "drop_last")
        if sampler is None:
            if self._streams:
                sampler = _Endless()
            else:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.sampler, self.batch_sampler = dataset, sampler, batch_sampler
        self.batch_size, self.drop_last = batch_size, drop_last
        self.generator, self.num_workers, self.timeout, self.worker_init_fn = generator, num_workers, timeout, worker_init_fn
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device, self.in_order = pin_memory, pin_memory_device, in_order
        self.persistent_workers = persistent_workers
        self.collate_fn = collate_fn or (default_collate if self._auto_collation else default_convert)
        self.multiprocessing_context = multiprocessing_context
        self._memory = Recycled()
        self._resume: Any = None
        self._reported_length: int | None = None  # of a stream, by its own __len__
        self._current: Any = None  # the iterator, where workers persist
        self._position: _Position | None = None  # of the latest iteration
        self._initialized = True
        self.check_worker_number_rationality()

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(f"DataLoader: {name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_current": None, "_position": None, "_memory": Recycled()}

    @property
    def multiprocessing_context(self) -> Any:
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            if self.num_workers == 0:
                raise ValueError("DataLoader: multiprocessing_context can only be used with multi-process loading "
                                 "(num_workers > 0), "
                                 f"but got num_workers={self.num_workers}")
            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError("DataLoader: multiprocessing_context option should specify a valid start method "
                                     f"in {methods!r}, "
                                     f"but got multiprocessing_context={context!r}")
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError("DataLoader: multiprocessing_context option should be a valid context object or a "
                                "string specifying the "
                                f"start method, but got multiprocessing_context={context!r}")
        self._context = context

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        """Batches of an epoch. For a stream it is what the length of the dataset says."""
        if not self._streams:
            return len(self._index_sampler)
        samples = self._reported_length = len(self.dataset)
        if self.batch_size is None:
            return samples
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def __iter__(self) -> Any:
        resumed, self._resume = self._resume, None
        if self.persistent_workers and self._current is not None and not self._current.pool.closed:
            self._current.restart(resumed)
            return self._current
        iterator = _Workers(self, resumed) if self.num_workers else _InProcess(self, resumed)
        self._current = iterator if self.persistent_workers else None
        return iterator

    def check_worker_number_rationality(self) -> None:
        """Warns when there are more workers than cores for them."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if cores and self.num_workers > cores:
            warnings.warn(f"DataLoader: {self.num_workers} worker processes on {cores} cores; more workers than cores "
                          "may be slow", stacklevel=3)

    def state_dict(self) -> dict[str, Any]:
        """The position of the latest iteration: the indices that it has not given yet, in order, and its seed.

        A loader that gets it by load_state_dict() gives exactly these batches in its next iteration; later ones are whole. If
        the loop was left, the iteration is where it was left; once it has ended, by StopIteration, or where there was none,
        the state is that of the beginning: the next iteration is whole (as torchdata's StatefulDataLoader). Within the body
        of the last step none is left, and the next iteration is empty. Workers begin with their seeds anew, so what a
        dataset draws by itself may differ.
        """
        if self._streams:
            raise NotImplementedError("DataLoader.state_dict: the position in an IterableDataset is known to that "
                                      "alone; have it save "
                                      "what it has read, or use a dataset with indices")
        if self._resume is not None:
            return dict(self._resume)
        if self._position is None or self._position.finished:
            return {"base_seed": None, "batches": None}
        return {"base_seed": self._position.base_seed, "batches": self._position.pending()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on where state_dict() was taken."""
        if sorted(state) != ["base_seed", "batches"]:
            raise ValueError(f"DataLoader.load_state_dict: keys are {sorted(state)}; must be those of DataLoader.state_dict()")
        self._resume, self._position = dict(state) if state["batches"] is not None else None, None


def _check_workers(num_workers: Any, timeout: Any, prefetch_factor: Any, persistent_workers: Any) -> None:
    if not isinstance(num_workers, Integral):
        raise TypeError(f"DataLoader: num_workers should be an int: got {num_workers!r}")
    if num_workers < 0:
        raise ValueError("DataLoader: num_workers option should be non-negative; use num_workers=0 to disable "
                         f"multiprocessing: got {num_workers}")
    if timeout < 0:
        raise ValueError(f"DataLoader: timeout option should be non-negative: got {timeout}")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError("DataLoader: prefetch_factor option could only be specified in multiprocessing; let "
                         "num_workers > 0, or leave it None")
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError(f"DataLoader: prefetch_factor option should be non-negative, and at least 1: got {prefetch_factor}")
    if persistent_workers and num_workers == 0:
        raise ValueError("DataLoader: persistent_workers option needs num_workers > 0")


class _Iterator:
    """One pass over a loader: what both kinds share."""

    def __init__(self, loader: DataLoader, resumed: Any) -> None:
        self._loader = loader
        self._begin(resumed)

    def _begin(self, resumed: Any) -> None:
        """A new epoch: its seed, its batches of indices, and how many were given."""
        # The order of draws from the default generator is torch's: the seed first, the sampler's with its first index.
        indices = iter(self._loader._index_sampler)
        self.base_seed = draw_seed(self._loader.generator)
        if resumed is not None:
            self.base_seed, indices = resumed["base_seed"], resumed["batches"]
        self.position = self._loader._position = _Position(self.base_seed, indices)
        self._given, self._warned = 0, False

    def __iter__(self) -> Any:
        return self

    def __len__(self) -> int:
        return len(self._loader._index_sampler)

    def __next__(self) -> Any:
        try:
            batch = self._next()
        except StopIteration:
            self.position.finished = True
            raise
        self._given += 1
        if self._loader._reported_length is not None and not self._warned:
            self._check_length()
        return batch

    def _next(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: no _next(); an iterator of batches must define it")

    def _check_length(self) -> None:
        expected = len(self._loader)
        if self._given > expected:
            self._warned = True
            workers = ("; with num_workers > 0, each worker has a copy of the dataset, which must give its own share: "
                       "see get_worker_info()"
                       if self._loader.num_workers else "")
            warnings.warn(f"DataLoader: Length of IterableDataset {self._loader.dataset!r} was reported to be "
                          f"{expected} (when accessing "
                          f"len(dataloader)), but {self._given} samples have been fetched{workers}", stacklevel=3)


class _InProcess(_Iterator):
    def __init__(self, loader: DataLoader, resumed: Any) -> None:
        super().__init__(loader, resumed)
        self._at = None
        self._fetcher = Fetcher(loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last,
                                functools.partial(setattr, self, "_at"))

    def _next(self) -> Any:
        indices = next(self.position.batches)
        try:
            with outputs(self._loader._memory.output):
                return self._fetcher.fetch(indices)
        except EndOfStream:
            raise StopIteration from None
        except StopIteration as error:
            raise RuntimeError(f"DataLoader: the dataset raised StopIteration at sample index {self._at}") from error


class _Workers(_Iterator):
    def __init__(self, loader: DataLoader, resumed: Any) -> None:
        from sluice.utils.data._workers import Pool

        super().__init__(loader, resumed)
        self.pool = Pool(loader, self.base_seed)
        self.pool.start(self.position)

    def restart(self, resumed: Any) -> None:
        """Another epoch of workers that persist; they keep their seeds."""
        self._begin(resumed)
        self.pool.start(self.position)

    def _next(self) -> Any:
        try:
            return self.pool.next()
        except StopIteration:
            if not self._loader.persistent_workers:
                self.pool.close()
            raise
