"""A worker process of a loader: makes batches in shared memory."""

from __future__ import annotations

import ctypes
import dataclasses
import io
import math
import os
import pickle
import random
import sys
import traceback
import weakref
from typing import Any

from sluice._C import Tensor
from sluice._tensor.creation import frombuffer, manual_seed
from sluice._tensor.functions import set_num_threads
from sluice._base.numbers import numpy as lazy_numpy
from sluice._tensor.pickling import check_sendable
from sluice.multiprocessing import _segments
from sluice.multiprocessing._channel import Channel
from sluice.utils.data import collate
from sluice.utils.data._fetch import NO_INDEX, EndOfStream, Fetcher

_SMALL = 512  # bytes of an array that are sent like everything else
_ALIGNMENT = 64
_PARENT_CHECK_SECONDS = 5.0


@dataclasses.dataclass
class WorkerInfo:
    """The facts about a worker process: its number, how many there are, its seed and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process what it is, elsewhere None; torch.utils.data.get_worker_info."""
    return _info


@dataclasses.dataclass
class Job:
    """The job that a worker is started with."""

    id: int
    num_workers: int
    dataset: Any
    batched: bool
    collate_fn: Any
    drop_last: bool
    init_fn: Any
    base_seed: int
    status: Any  # of shared memory: the index of the sample in work


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            check_sendable(obj)
        return NotImplemented


class Memory:
    """Segments for batches. One is used again when the loader has said that its batch is gone, and nothing here uses it, too."""

    def __init__(self) -> None:
        self._segments: dict[int, _segments.Segment] = {}
        self._free: list[int] = []
        self._users: dict[int, Any] = {}
        self._stacked: dict[int, int] = {}  # address: id, of the segments that the batch in work was stacked into
        self._next_id = 0
        self.new: list[tuple[int, int]] = []  # (id, descriptor) that the loader does not know yet
        self.dropped: list[int] = []

    def take(self, nbytes: int) -> tuple[int, Any]:
        """The id and the bytes of a segment of at least `nbytes`."""
        for i in self._free:
            if nbytes <= self._segments[i].size <= 2 * nbytes + (1 << 16) and self._users[i]() is None:
                self._free.remove(i)
                break
        else:
            if len(self._free) > 8:  # sizes have changed
                self._drop(self._free.pop(0))
            i = self._next_id
            self._next_id += 1
            fd = _segments.create(nbytes)
            self._segments[i] = _segments.Segment(fd)
            self.new.append((i, fd))
        buffer = self._segments[i].buffer()
        self._users[i] = weakref.ref(buffer)
        return i, buffer

    def _drop(self, i: int) -> None:
        del self._segments[i], self._users[i]
        self.dropped.append(i)

    def give_back(self, ids: Any) -> None:
        self._free.extend(i for i in ids if i in self._segments)

    def output(self, shape: Any, dtype: Any) -> Any:
        """A tensor for a batch: when it is sent, it lies where it is to be."""
        count = math.prod(shape)
        i, buffer = self.take(count * dtype.itemsize)
        self._stacked[ctypes.addressof(buffer)] = i
        return frombuffer(buffer, dtype=dtype, count=count).view(shape)

    def pack(self, batch: Any) -> tuple[bytes, list[tuple[int, int, int]]]:
        """A batch as a pickle, and where its arrays lie: (segment, offset, bytes) of each."""
        raw: list[memoryview] = []

        def keep(buffer: Any) -> bool:
            view = buffer.raw()
            if view.nbytes < _SMALL:
                return True  # in the pickle
            raw.append(view)
            return False

        out = io.BytesIO()
        _Pickler(out, protocol=5, buffer_callback=keep).dump(batch)
        places: list[Any] = []
        total, used = 0, set()
        for view in raw:
            i = None if view.readonly else self._stacked.get(ctypes.addressof(ctypes.c_ubyte.from_buffer(view)))
            if i is not None:
                used.add(i)
                places.append((i, 0, view.nbytes))
            else:
                places.append(total)
                total += -(-view.nbytes // _ALIGNMENT) * _ALIGNMENT
        if total:
            together, buffer = self.take(total)
            target = memoryview(buffer).cast("B")
            for n, view in enumerate(raw):
                if isinstance(places[n], int):
                    start = places[n]
                    target[start:start + view.nbytes] = view
                    places[n] = (together, start, view.nbytes)
        self._free.extend(i for i in self._stacked.values() if i not in used)
        self._stacked.clear()
        return out.getvalue(), places

    def forget_stacked(self) -> None:
        """After a batch that failed."""
        self._free.extend(self._stacked.values())
        self._stacked.clear()


class _Exit(Exception):
    """The loader needs this worker no more."""


def run(sock: Any, others: Any, job: Job) -> None:
    """The main function of a worker. `others`: sockets that fork() has copied here and that belong to the loader alone."""
    for other in others:
        other.close()
    channel, parent = Channel(sock), os.getppid()
    memory = Memory()
    try:
        _seed(job)
        set_num_threads(1)
        failure = None
        try:
            if job.init_fn is not None:
                job.init_fn(job.id)
        except Exception as error:
            failure = pickle.dumps(describe(error))
        with collate.outputs(memory.output):
            _serve(channel, parent, memory, job, failure)
    except (_Exit, EOFError, BrokenPipeError, ConnectionError, KeyboardInterrupt):
        pass  # the loader, or its process, has ended
    sys.stdout.flush()
    sys.stderr.flush()


def _seed(job: Job) -> None:
    global _info
    seed = job.base_seed + job.id
    random.seed(seed)
    manual_seed(seed)
    np = lazy_numpy()
    words = [job.id, job.base_seed & 0xFFFFFFFF, job.base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(words).generate_state(4))
    _info = WorkerInfo(job.id, job.num_workers, seed, job.dataset)


def _serve(channel: Channel, parent: int, memory: Memory, job: Job, failure: Any) -> None:
    fetcher, epoch, ended = None, None, False
    while True:
        for message, _ in _messages(channel, parent):
            number, task, indices, freed = pickle.loads(message)
            memory.give_back(freed)
            if number != epoch:
                fetcher, epoch, ended = None, number, False
            if ended:
                continue  # asked before the loader knew that the stream has ended
            kind, data, places = "error", b"", []
            job.status.value = NO_INDEX
            try:
                if failure is None:
                    fetcher = fetcher or Fetcher(job.dataset, job.batched, job.collate_fn, job.drop_last,
                                                 lambda i: _note(job.status, i))
                    data, places = memory.pack(fetcher.fetch(indices))
                    kind = "batch"
            except EndOfStream:
                kind, ended = "end", True
            except Exception as error:
                data = pickle.dumps(describe(error))
            if kind != "batch":
                memory.forget_stacked()
            new, dropped, memory.new, memory.dropped = memory.new, memory.dropped, [], []
            channel.send(pickle.dumps((number, task, kind, job.status.value, [i for i, _ in new], dropped, places,
                                       failure or data)),
                         [fd for _, fd in new])
            channel.flush_all()


def _note(status: Any, index: Any) -> None:
    status.value = index if isinstance(index, int) else NO_INDEX


def _messages(channel: Channel, parent: int) -> Any:
    while not channel.wait(_PARENT_CHECK_SECONDS):
        if os.getppid() != parent:
            raise _Exit
    return channel.receive()


def describe(error: BaseException) -> tuple[bytes | None, str, str]:
    """An exception for another process: its pickled type, the name of that, and its traceback as text."""
    kind = type(error)
    try:
        data = pickle.dumps(kind)
        pickle.loads(data)
    except Exception:
        data = None  # of a function, or of the main program: the other process cannot name it
    return data, kind.__name__, "".join(traceback.format_exception(kind, error, error.__traceback__))
