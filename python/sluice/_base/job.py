"""The job this process takes part in, if any, and what it has under way there."""

import _thread
import queue
import threading
import time

from sluice.errors import RuntimeError  # noqa: A004


class Work:
    """A collective that is under way: what `async_op=True` returns. As torch.distributed.Work.

    Works run one after another, in the order of their calls, on a thread of their own; their tensors must be left alone
    until they are completed. `began` and `ended` are times of time.perf_counter(), None before.
    """

    def __init__(self, call):
        self._call, self._error, self._completed = call, None, threading.Event()
        self.began = self.ended = None

    def is_completed(self):
        """Whether it has ended, well or not."""
        return self._completed.is_set()

    def exception(self):
        """Waits until it has ended; returns the error it ended with, or None."""
        self._completed.wait()
        return self._error

    def wait(self):
        """Returns True when it is done; raises what the same call without `async_op` would have raised."""
        if self.exception() is not None:
            raise self._error
        return True

    def _run(self):
        self.began = time.perf_counter()
        try:
            self._call()
        except BaseException as error:
            self._error = error
        self.ended, self._call = time.perf_counter(), None
        self._completed.set()


class _State:
    world = None  # _C.World
    place = None
    _works = None  # for the thread that runs them
    _last = None

    @property
    def rank(self):
        """This process's rank; 0 where there is no job."""
        return 0 if self.world is None else self.world.rank

    def get(self, what):
        if self.world is None:
            raise RuntimeError(f"{what}: the ranks have not met; call sluice.distributed.init() first")
        return self.world

    def run(self, what, async_op, call):
        """call(world) behind all calls before it: now, or on the works' thread, which gives the Work."""
        world = self.get(what)
        if not async_op:
            self.settle()
            return call(world)
        if self._works is None:
            self._works = queue.SimpleQueue()
            _thread.start_new_thread(_run_all, (self._works,))  # nobody waits for it: leaving ends what it waits for
        self._last = Work(lambda: call(world))
        self._works.put(self._last)
        return self._last

    def settle(self):
        """Waits until nothing is under way."""
        if self._last is not None:
            self._last.exception()
            self._last = None

    def leave(self, failure=""):
        """Ends what is under way, and this process's part in the job."""
        world, works, self.world, self.place, self._works, self._last = self.world, self._works, None, None, None, None
        if world is not None:
            world.leave(failure)
        if works is not None:
            works.put(None)


def _run_all(works):
    while (work := works.get()) is not None:
        work._run()


state = _State()
