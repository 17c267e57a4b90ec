"""The worker processes of a loader, as seen by it: hands out batches to make, and gives them back in order."""

from __future__ import annotations

import collections
import ctypes
import multiprocessing
import os
import pickle
import select
import signal
import time
import weakref
from typing import Any

from sluice import _C
from sluice.multiprocessing import _segments
from sluice.multiprocessing._channel import Channel
from sluice.utils.data import _worker
from sluice.utils.data._fetch import NO_INDEX

_END_SECONDS = 5.0  # that a worker has to end by itself
_FAILED_SECONDS = 0.5  # the same, after a failure: the one that hangs would take all of them


class WorkerLost(_C.RuntimeError):
    """A worker has died, or takes too long. `index`: the sample it was at, or NO_INDEX; `how`: what it did."""

    def __init__(self, message: str, index: int = NO_INDEX, how: str = "") -> None:
        super().__init__(message)
        self.index, self.how = index, how


class _Worker:
    """A process, the channel to it, and the shared memory it has announced."""

    def __init__(self, context: Any, job: _worker.Job, others: list[Any]) -> None:
        self.id = job.id
        self.status = job.status = context.RawValue(ctypes.c_longlong, NO_INDEX)
        ours, theirs = Channel.pair()
        copied = [ours, *others] if context.get_start_method() == "fork" else []
        self.process = context.Process(target=_worker.run, args=(theirs, copied, job), daemon=True)
        self.process.start()
        theirs.close()
        self.socket, self.channel = ours, Channel(ours)
        self.segments: dict[int, _segments.Segment] = {}
        self.freed: collections.deque[int] = collections.deque()  # by whatever thread drops the last tensor of a batch
        self.tasks: dict[int, Any] = {}  # batches in work, with their indices
        self.ended = False  # its stream, in this epoch

    def send(self, epoch: int, task: int, indices: Any) -> None:
        freed = [self.freed.popleft() for _ in range(len(self.freed))]
        self.tasks[task] = indices
        self.channel.send(pickle.dumps((epoch, task, indices, freed)))

    def unpack(self, data: bytes, places: Any) -> Any:
        """The batch of a message. A segment is free again when nothing uses its memory any more."""
        views: dict[int, memoryview] = {}
        for i, _, _ in places:
            if i not in views:
                buffer = self.segments[i].buffer()
                weakref.finalize(buffer, self.freed.append, i).atexit = False
                views[i] = memoryview(buffer).cast("B")
        return pickle.loads(data, buffers=[views[i][start:start + size] for i, start, size in places])

    def working_on(self, batched: bool) -> str:
        """Says where it is, for errors."""
        if not self.tasks:
            return "between batches"
        task, indices = next(iter(self.tasks.items()))
        text = f"in batch {task}"
        if self.status.value != NO_INDEX:
            text += f", at sample index {self.status.value}"
        if batched and isinstance(indices, list):
            text += f", of sample indices {indices!r:.200}"
        return text


def _end(workers: list[_Worker], seconds: float) -> None:
    """Ends the processes: they see their sockets close; who does not in time is killed."""
    for worker in workers:
        worker.channel.close()
    limit = time.monotonic() + seconds
    for worker in workers:
        worker.process.join(max(0.0, limit - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()
    workers.clear()


def _end_in_own_process(workers: list[_Worker], pid: int) -> None:
    if os.getpid() == pid:  # a fork() of this process has copies of the handles, not the children
        _end(workers, _END_SECONDS)


class Pool:
    """Workers for epochs of a loader. `start` begins an epoch; `next` gives its batches.

    A failure of a worker is an error of the batch that was asked for; when one has died, the others are ended.
    """

    def __init__(self, loader: Any, base_seed: int) -> None:
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self._loader, self._workers, self._epoch = loader, [], 0
        self._finalizer = weakref.finalize(self, _end_in_own_process, self._workers, os.getpid())
        for i in range(loader.num_workers):
            job = _worker.Job(i, loader.num_workers, loader.dataset, loader._auto_collation, loader.collate_fn,
                              loader.drop_last, loader.worker_init_fn, base_seed, None)
            self._workers.append(_Worker(context, job, [w.socket for w in self._workers]))

    def close(self) -> None:
        self._finalizer()

    def _close_failed(self) -> None:
        if self._finalizer.detach():
            _end(self._workers, _FAILED_SECONDS)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def start(self, position: Any) -> None:
        """Begins an epoch over the indices of a position. Batches that workers still have of an earlier epoch are dropped
        as they come."""
        self._epoch += 1
        self._position, self._given, self._wanted = position, 0, 0
        self._turns = 0
        self._done: dict[int, Any] = {}  # batches that came before their turn
        self._owner: dict[int, _Worker] = {}
        self._indices: dict[int, Any] = position.begun
        for worker in self._workers:
            worker.ended = False
            worker.tasks.clear()
        for _ in range((self._loader.prefetch_factor or 2) * len(self._workers)):
            self._give()

    def _give(self) -> None:
        """Another batch to a worker: in turn, but for those whose streams have ended."""
        n = len(self._workers)
        worker = next((w for w in (self._workers[(self._turns + k) % n] for k in range(n)) if not w.ended), None)
        if worker is None:
            return
        try:
            indices = next(self._position.batches)
        except StopIteration:
            return
        self._turns = worker.id + 1
        worker.send(self._epoch, self._given, indices)
        self._owner[self._given], self._indices[self._given] = worker, indices
        self._given += 1
        self._flush(worker)

    def next(self) -> Any:
        """The next batch, which is (data, places, worker) until it is unpacked. Raises StopIteration after the last."""
        while True:
            task = self._next_task()
            if task is None:
                self._indices.clear()
                raise StopIteration
            if task in self._done:
                break
            self._receive(task)
        kind, worker, index, data, places = self._done.pop(task)
        self._wanted = task + 1
        indices = self._indices.pop(task)
        self._owner.pop(task)
        self._give()
        if kind == "error":
            self._raise(worker, task, index, indices, pickle.loads(data))
        return worker.unpack(data, places)

    def _next_task(self) -> int | None:
        """The batch to give next, or to wait for."""
        if not self._loader.in_order and self._done:
            return min(self._done)
        return min(self._indices, default=None)

    def _receive(self, task: int) -> None:
        """Waits for messages of any worker, and for their deaths."""
        timeout = self._loader.timeout
        limit = time.monotonic() + timeout if timeout > 0 else None
        poll = select.poll()
        by_fd = {}
        for worker in self._workers:
            poll.register(worker.channel, select.POLLIN | (select.POLLOUT if worker.channel.unsent else 0))
            by_fd[worker.channel.fileno()] = worker
        ready = poll.poll(None if limit is None else max(0.0, limit - time.monotonic()) * 1000)
        if not ready:
            worker = self._owner[task]
            where, index = worker.working_on(self._loader._auto_collation), worker.status.value
            self._close_failed()
            raise WorkerLost(f"DataLoader timed out after {timeout} seconds: worker {worker.id} is {where}; raise timeout, or see "
                             "what the dataset waits for", index, f"gave nothing for {timeout} seconds")
        for fd, event in ready:
            worker = by_fd[fd]
            if event & select.POLLOUT:
                self._flush(worker)
            if event & ~select.POLLOUT:
                self._read(worker)

    def _flush(self, worker: _Worker) -> None:
        try:
            worker.channel.flush()
        except OSError:
            pass  # it has died; reading says so, after what it still had sent

    def _read(self, worker: _Worker) -> None:
        try:
            messages = worker.channel.receive()
        except EOFError:
            self._died(worker)
        for message, descriptors in messages:
            epoch, task, kind, index, new, dropped, places, data = pickle.loads(message)
            for i, fd in zip(new, descriptors):
                try:
                    worker.segments[i] = _segments.Segment(fd)
                finally:
                    os.close(fd)
            if epoch != self._epoch:
                worker.freed.extend({i for i, _, _ in places})
            elif kind == "end":
                self._end_of(worker)
            else:
                worker.tasks.pop(task, None)
                self._done[task] = (kind, worker, index, data, places)
            for i in dropped:
                del worker.segments[i]

    def _end_of(self, worker: _Worker) -> None:
        """Its stream has ended: what it was asked for since will not come, and others get its turns."""
        worker.ended = True
        for task in worker.tasks:
            del self._indices[task], self._owner[task]
        count = len(worker.tasks)
        worker.tasks.clear()
        for _ in range(count):
            self._give()

    def _died(self, worker: _Worker) -> None:
        worker.process.join(_END_SECONDS)
        code, pid, where = worker.process.exitcode, worker.process.pid, worker.working_on(self._loader._auto_collation)
        number, index = worker.id, worker.status.value
        self._close_failed()
        raise WorkerLost(f"DataLoader worker {number} (pid(s) {pid}) exited unexpectedly {where}: {_how(code)}", index, f"ended: {_how(code)}")

    def _raise(self, worker: _Worker, task: int, index: int, indices: Any, described: Any) -> None:
        kind, name, text = described
        where = f"sample index {index} of batch {task}" if index != NO_INDEX else f"batch {task}"
        if self._loader._auto_collation and isinstance(indices, list) and index == NO_INDEX:
            where += f" of sample indices {indices!r:.200}"
        message = f"Caught {name} in DataLoader worker process {worker.id}, at {where}.\nOriginal {text}"
        raise rebuilt(kind, message)


def _how(code: int | None) -> str:
    if code is None:
        return "it has closed its connection and does not end"
    if code >= 0:
        return f"exit code {code}; see what it has written to stderr"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    hint = "; the system may have run out of memory" if -code == signal.SIGKILL else ""
    return f"killed by signal {name}{hint}"


class _MultilineKeyError(str):
    """KeyError shows the repr of its message, which has its lines in one."""

    def __repr__(self) -> str:
        return str(self)


def rebuilt(kind: bytes | None, message: str) -> BaseException:
    """An exception of the original type, or a RuntimeError where that cannot be made of a message."""
    original: Any = None if kind is None else pickle.loads(kind)
    if original is None or not issubclass(original, Exception) or issubclass(original, (StopIteration, StopAsyncIteration)):
        return _C.RuntimeError(message)
    try:
        return original(_MultilineKeyError(message) if issubclass(original, KeyError) else message)
    except Exception:
        return _C.RuntimeError(message)
