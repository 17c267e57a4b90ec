"""Records calls of ops, ranges, and the steps of graphs while a profile runs.

While one runs, the functions of ops are replaced by such that note when they were called and how long they took: an eager op
computes before its call returns. Otherwise nothing is replaced, so profiling that is off costs nothing.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import threading
import time
from typing import Any, Callable

from sluice import _C
from sluice._C import Tensor
from sluice.profiler._events import FunctionEvent

recorder: Any = None  # the one that runs
_ranges = threading.local()
_NO_OPS = {"numel", "nelement"}  # functions that compute nothing
_FORMS = (type(_C.fn.add), type(Tensor.__dict__["add"]), type(_C.ops.add))
_PASSES = {"backward": "backward", "grad": "autograd.grad"}  # of the engine of gradients: one event each


class Recorder:
    """Events since start(), until stop(). Times are nanoseconds of time.perf_counter_ns()."""

    def __init__(self, shapes: bool, stacks: bool, memory: bool) -> None:
        self.shapes, self.stacks, self.memory = shapes, stacks, memory
        self.events: list[FunctionEvent] = []
        self.enabled = True
        self.traces: list[dict] = []  # of plans, as save_trace writes them
        self.unix_ns = self.begin_ns = 0
        self._sessions: dict[int, Any] = {}
        self._replaced: list[tuple] = []

    def start(self) -> None:
        global recorder
        if recorder is not None:
            raise RuntimeError("profile: Profiler is already enabled; one runs at a time")
        self.unix_ns, self.begin_ns = time.time_ns(), time.perf_counter_ns()
        recorder = self
        self._replace()

    def stop(self) -> None:
        global recorder
        for owner, name, original in self._replaced:
            setattr(owner, name, original)
        self._replaced.clear()
        recorder = None
        for graph, session in self._sessions.values():
            session.synchronize()
            session.set_trace(False)
            self._take(graph, json.loads(session.take_trace()))
        self._sessions.clear()

    # Calls of ops

    def _replace(self) -> None:
        for module in ("sluice.nn", "sluice.optim"):  # what they take from others must be the functions themselves
            importlib.import_module(module)
        made: dict[int, Any] = {}

        def put(owner: Any, name: str, value: Any, replacement: Any) -> None:
            self._replaced.append((owner, name, value))
            setattr(owner, name, replacement)

        for module in [m for n, m in list(sys.modules.items()) if n.partition(".")[0] == "sluice" and m is not None]:
            if module.__name__.startswith("sluice.profiler"):
                continue
            for name, value in list(vars(module).items()):
                if type(value) in _FORMS and name not in _NO_OPS:
                    if id(value) not in made:
                        made[id(value)] = _Timed(value, _name_of(value, name))
                    put(module, name, value, made[id(value)])
                elif isinstance(value, type) and value is not Tensor and value.__module__ == module.__name__:
                    for key, member in list(vars(value).items()):  # such as the function of a layer
                        held = member.__func__ if isinstance(member, staticmethod) else member
                        if type(held) in _FORMS:
                            put(value, key, member, _Timed(held, _name_of(held, key)))
        for name, value in list(Tensor.__dict__.items()):
            if type(value) in _FORMS and name not in _NO_OPS:
                put(Tensor, name, value, _timed(value, _name_of(value, name)))
        for name, event in _PASSES.items():
            put(_C, name, getattr(_C, name), _timed(getattr(_C, name), event))
        from sluice._graph.graph import Graph
        from sluice.optim import LBFGS, Optimizer

        put(Graph, "__call__", Graph.__call__, _timed_graph(Graph.__call__))
        for owner in (Optimizer, LBFGS):
            for name in ("step", "zero_grad"):
                if name in vars(owner):
                    put(owner, name, vars(owner)[name], _timed_method(vars(owner)[name]))

    def add(self, name: str, begin_ns: int, end_ns: int, inputs: Any = (), memory: int = 0, annotation: bool = False) -> None:
        self.events.append(FunctionEvent(
            name, begin_ns, end_ns, threading.get_ident(), shapes_of(inputs) if self.shapes else None,
            _stack() if self.stacks else [], memory, annotation))

    # Graphs

    def watch(self, graph: Any, args: Any, kwargs: Any) -> None:
        """Lets the plans of a graph record their kernels."""
        if graph._call is None:
            graph.compile(*args, **kwargs)
        for session in graph._call.sessions():
            if id(session) not in self._sessions:
                self._sessions[id(session)] = graph.name, session
                session.set_trace(True)

    def _take(self, graph: str, trace: dict) -> None:
        """The kernels of a plan as events, on this recorder's clock; a stream is a thread of its own."""
        shift = trace["beginUnixNs"] - self.unix_ns + self.begin_ns
        streams = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
        for event in trace["traceEvents"]:
            if event["ph"] == "X" and event.get("cat") == "kernel":
                begin = shift + round(event["ts"] * 1e3)
                if begin >= self.begin_ns:
                    self.events.append(FunctionEvent(event["name"], begin, begin + round(event["dur"] * 1e3),
                                                     f"{graph} on {streams.get(event['tid'], event['tid'])}", None, [], 0,
                                                     False, kernel=True))
        self.traces.append(trace)


def _name_of(form: Any, name: str) -> str:
    return getattr(form, "__name__", name).strip("_") if name.startswith("__") else getattr(form, "__name__", name)


def shapes_of(inputs: Any) -> list:
    return [list(a._shape) if isinstance(a, Tensor) else [] for a in inputs]


def _stack() -> list[str]:
    """The lines of the program that led here, innermost first, without those of Sluice."""
    frame, found = sys._getframe(2), []
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != "sluice":
            found.append(f"{frame.f_code.co_filename}({frame.f_lineno}): {frame.f_code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return found


def _bytes() -> int:
    return _C.eager_memory_stats()["current_bytes"]


def _timed(function: Any, name: str) -> Any:
    @functools.wraps(function, updated=())
    def timed(*args, **kwargs):
        mine = recorder
        if mine is None or not mine.enabled or _C.is_tracing():
            return function(*args, **kwargs)
        held = _bytes() if mine.memory else 0
        begin = time.perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            end = time.perf_counter_ns()
            mine.add(name, begin, end, args, _bytes() - held if mine.memory else 0)

    return timed


class _Timed:
    """_timed() of a function that modules and classes hold; like that, it does not bind to objects."""

    def __init__(self, function: Any, name: str) -> None:
        self._function, self._timed, self.__doc__ = function, _timed(function, name), function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._function, name)

    def __reduce__(self) -> Any:
        return _itself, (self._function,)  # what a program keeps of a profile's time is the function


def _itself(function: Any) -> Any:
    return function


def _timed_graph(call: Any) -> Any:
    @functools.wraps(call)
    def timed(self, *args, **kwargs):
        mine = recorder
        if mine is None or not mine.enabled or _C.is_tracing():
            return call(self, *args, **kwargs)
        with record_function(f"Graph {self.name}"):
            mine.watch(self, args, kwargs)
            return call(self, *args, **kwargs)

    return timed


def _timed_method(method: Any) -> Any:
    """Times a method of an optimizer: "Optimizer.step#SGD.step"."""
    @functools.wraps(method)
    def timed(self, *args, **kwargs):
        with record_function(f"Optimizer.{method.__name__}#{type(self).__name__}.{method.__name__}"):
            return method(self, *args, **kwargs)

    return timed


class record_function:
    """A range of the program by name, in profiles that run: a context manager and a decorator. torch.profiler.record_function."""

    def __init__(self, name: str, args: str | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"record_function: name is {type(name).__name__}; must be str")
        self.name, self.args = name, args

    def __enter__(self) -> record_function:
        self._begin, self._of = time.perf_counter_ns(), recorder
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._of is not None and self._of is recorder and self._of.enabled:
            self._of.add(self.name, self._begin, time.perf_counter_ns(), annotation=True)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inside(*args, **kwargs):
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return inside


def range_push(name: str) -> int:
    """Begins a range on this thread; how many there were around it. torch.cuda.nvtx.range_push, oneflow.profiler.range_push."""
    stack = _ranges.__dict__.setdefault("stack", [])
    stack.append(record_function(name).__enter__())
    return len(stack) - 1


def range_pop() -> int:
    """Ends the range that this thread has begun last; how many are left around it."""
    stack = _ranges.__dict__.get("stack")
    if not stack:
        raise RuntimeError("range_pop: no range was begun on this thread; range_push() begins one")
    stack.pop().__exit__()
    return len(stack)
