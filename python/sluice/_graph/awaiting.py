"""Calls of a graph from asyncio: threads of its own wait, in order, so that the event loop never does."""

from __future__ import annotations

import asyncio
import queue
import threading
import weakref
from typing import Any, Callable

from sluice._C import Tensor
from sluice._base.structure import flatten


class _Worker:
    """A thread that does jobs one after another. It ends with the object, and does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(self._jobs,), name=name, daemon=True).start()
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def run(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._jobs.put((job, loop, future))
        return future

    @staticmethod
    def _work(jobs: Any) -> None:
        while (entry := jobs.get()) is not None:
            job, loop, future = entry
            try:
                settle, value = _set_result, job()
            except BaseException as error:  # the awaiting coroutine's, whatever it is
                settle, value = _set_exception, error
            try:
                loop.call_soon_threadsafe(settle, future, value)
            except RuntimeError:  # the loop was closed: nobody waits any more
                pass
            del entry, job, loop, future, value


def _set_result(future: Any, value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _set_exception(future: Any, error: Any) -> None:
    if not future.done():
        future.set_exception(error)


class Awaiting:
    """Submits steps on one thread, which may wait for room, and waits for them on another."""

    def __init__(self, name: str) -> None:
        self._submitter, self._waiter = _Worker(f"{name}: submit"), _Worker(f"{name}: wait")

    async def run(self, graph: Any, args: Any, kwargs: Any) -> Any:
        graph.compile(*args, **kwargs)  # here, in the caller's gradient mode and scopes
        result = await self._submitter.run(lambda: graph(*args, **kwargs))
        leaves: list[Any] = []
        flatten(result, "", leaves, [])
        await self._waiter.run(graph.synchronize if not leaves else lambda: [leaf.sync() for leaf in leaves])
        return result


def eval(*values: Any) -> None:  # noqa: A001
    """Waits until all tensors in `values`, also within lists, tuples and dicts, are there; MLX's eval(). Eager tensors always are, and
    results of graphs once their step has run. Raises the error of a step that has failed."""
    _wait(values)


def _wait(value: Any) -> None:
    if isinstance(value, Tensor):
        value.sync()
    elif isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            _wait(one)
