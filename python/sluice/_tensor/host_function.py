"""Python functions as actors on host streams."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._base.device import device, stream as stream_scope
from sluice._base.dim import Dim
from sluice._base.trace import running


class Generated:
    """A generator function as one that gives the next item. After the last, or reset(), it begins anew."""

    def __init__(self, fn: Any) -> None:
        self.fn, self.__name__, self._items = fn, fn.__name__, None

    def __call__(self) -> Any:
        if self._items is None:
            self._items = self.fn()
        try:
            return next(self._items)
        except StopIteration:
            self._items = None
            raise

    def reset(self) -> None:
        self._items = None


def begin_anew(functions: Any) -> None:
    """Begins all functions anew that can."""
    for function in functions.values():
        if callable(getattr(function, "reset", None)):
            function.reset()


def _name_of(fn: Any) -> Any:
    """The name of `fn`: in the graph being traced its own there. Graphs name alike what is named alike."""
    base = getattr(fn, "__name__", type(fn).__name__)
    table = running.now.functions
    if table is None:
        return base
    names = itertools.chain([base], (f"{base}_{i}" for i in itertools.count(1)))
    name = next(n for n in names if table.get(n, fn) is fn)
    table[name] = fn
    return name


def _axis(size: Any) -> tuple[int, str]:
    """An axis of a declared shape: its size, or the most of a dim and the dim's name."""
    return (size.max, size.name) if isinstance(size, Dim) else (size, "")


def host_function(fn: Any, *tensors: Any, out: Any, stream: str = "host") -> Any:
    """Calls `fn(*arrays)` with the contents of `tensors` as numpy arrays; returns tensors of the declared types.

    The arrays are read-only, and `fn`'s own: they stay as they are for as long as it keeps them, or views of them.

    out: (shape, dtype) of the result, or a list of them. `fn` returns one numpy array, or a tuple, of these types.
    In a graph this is an actor on `stream` ("host", "host:1", ...) that runs beside the compute stream; an exception
    in `fn` fails that step with fn's traceback. It may keep state: it is called once per step, in order.

    An axis of a shape may be a sluice.Dim: what `fn` returns then has any number of rows there, from none to the dim's `max`
    (nothing else it says counts here), and equally many in all results that have the dim. In a graph that is known only when
    a step runs: build() sees `max` rows, of which those that are not there are zeros. Ops that compute row by row keep the dim;
    results of the graph that have it, and arrays given to another host function, are as long as they are in the step, and a
    call of such a graph returns when its step is done. A function whose inputs have the dim returns as many rows as they have.
    Ops that would mix rows are refused with the line: mask them, with extent(), before. Raises ValueError where a result has
    more rows than `max`, or not as many as another with the dim.

    Without `tensors` it is a source: `fn()` makes the next arrays by itself, or is a generator function that yields them. That it
    raises StopIteration, or returns from a generator, says that the data has ended: the steps before are finished, results of the
    others, and further calls of the graph, raise sluice.EndOfData until graph.reset().
    """
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"host_function: argument {i} of {fn!r} is {type(t).__name__}; must be a Tensor")
    single = isinstance(out, tuple)
    declared = [([_axis(size) for size in shape], dtype) for shape, dtype in ([out] if single else out)]
    if inspect.isgeneratorfunction(fn):
        if tensors:
            raise TypeError(f"host_function: {fn!r} is a generator function, which makes data by itself, and got "
                            f"{len(tensors)} tensors; use an ordinary function to compute on tensors")
        if running.now.functions is None:
            raise TypeError(f"host_function: {fn!r} is a generator function, which is a source of graphs; outside of a graph, "
                            "call it yourself and iterate")
        fn = Generated(fn)
    name = _name_of(fn)
    if running.now.moves is not None and not getattr(fn, "stays", False):
        stream = running.now.moves.stream_of(name, stream)
    with device("cpu"), stream_scope(stream):
        results = _C.call_host_function(list(tensors), name, fn, declared)
    return results[0] if single else tuple(results)


def extent(x: Tensor, dim: int) -> Tensor:
    """How many rows axis `dim` of `x` has, as an int64 tensor without axes: in a graph, of the step (see host_function).

        mask = sl.arange(32) < sl.extent(x, 0)            # x: (32, 8), of which a step has fewer
        total = sl.where(mask.reshape(-1, 1), x, 0).sum()

    A value that is joined row by row with a bool tensor made of the extent has `max` rows from then on: it can be summed,
    sorted or kept in a buffer, and the mask says what stands in place of missing rows. Raises IndexError where x has no
    such axis.
    """
    return _C.extent(x, dim)
