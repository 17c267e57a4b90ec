"""Breaks are what a trace cannot follow; this module finds them out."""

from __future__ import annotations

import builtins
import functools
import logging
import random
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from typing import Any, Iterator

import numpy

import sluice
from sluice import _C
from sluice._C import Generator, Tensor
from sluice._guards.code import is_ours


class Break(_C.RuntimeError):
    """A break of a trace: `kind` in a word, why, and "file:line" of the user's code ("" where that is not known)."""

    def __init__(self, kind: str, reason: str, place: str = "") -> None:
        self.kind, self.reason, self.place = kind, reason, place
        super().__init__(f"{place}: {reason}" if place else reason)


def user_place(frame: Any = None) -> str:
    """"file:line" of the innermost frame that is not Sluice's."""
    frame = frame or sys._getframe(1)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def warn(text: str) -> None:
    """A RuntimeWarning of the user's line, unless this thread explains."""
    if _listener.explains:
        return
    depth, frame = 1, sys._getframe(0)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=depth)


def place_of(error: BaseException) -> str:
    """The place of the user's code when it was raised."""
    found, traceback = "", error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not is_ours(file):
            found = f"{file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


_NEEDS_VALUE = ("has no value while a graph is built", "its content exists only when the graph runs", "has no memory of its",
                "is part of a graph", "has no shape while a graph is built", "while a graph is traced", "a graph is built")


def as_break(error: BaseException) -> Break:
    """The exception that was raised while tracing, as a break."""
    if isinstance(error, Break):
        return error
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if any(sign in text for sign in _NEEDS_VALUE):
        what = text.partition(":")[0]
        return Break("value", f"{_CALLED.get(what, what + '()')} reads the value of a tensor: {text}", place_of(error))
    if isinstance(error, TypeError) and "converted to an index" in text:
        return Break("value", f"an index reads the value of a tensor: {text}", place_of(error))
    return Break("refused" if isinstance(error, (_C.Error, NotImplementedError)) else "error", f"{type(error).__name__}: {text}",
                 place_of(error))


_CALLED = {"item": ".item(), or a bool or number made of a tensor,", "numpy": ".numpy()", "tolist": ".tolist()",
           "index": "an index by a bool mask", "data_ptr": ".data_ptr()"}


def _called(name: str) -> Any:
    return f"{name}() reaches the host"


class _Listener(threading.local):
    host: Any = None  # called with (name, place) of calls of the host
    reads: Any = None  # called with (name, place) of reads of values
    explains = False


@contextmanager
def explaining() -> Iterator[None]:
    """Inside, nobody is warned of what is told anyway."""
    before, _listener.explains = _listener.explains, True
    try:
        yield
    finally:
        _listener.explains = before


_listener = _Listener()
_lock = threading.Lock()
_users = 0
_plain: list[tuple[Any, str, Any]] = []
_CLOCKS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "sleep")
_HOST = ((builtins, "print", "print"), (builtins, "input", "input"), (builtins, "open", "open"),
         (logging.Logger, "handle", "logging"), *((time, name, f"time.{name}") for name in _CLOCKS),
         (sluice, "manual_seed", "manual_seed"), (sluice, "seed", "seed"), (Generator, "manual_seed", "Generator.manual_seed"))


def _listened(plain: Any, name: str, kind: str) -> Any:
    @functools.wraps(plain)
    def called(*args: Any, **kwargs: Any) -> Any:
        listener = getattr(_listener, kind)
        told = kind == "host" or (args and isinstance(args[0], Tensor))
        if listener is not None and told and not is_ours(sys._getframe(1).f_code.co_filename):
            listener(name, user_place(sys._getframe(1)))
        return plain(*args, **kwargs)

    return called


@contextmanager
def _listening(**to: Any) -> Iterator[None]:
    """Functions of the host, and what reads values of tensors, tell the listeners `to` of this thread when user code calls them."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            places: list[tuple[Any, str, str, str]] = [(owner, name, shown, "host") for owner, name, shown in _HOST]
            places += [(Tensor, name, shown, "reads") for name, shown in _READS.items() if hasattr(Tensor, name)]
            places += [(numpy, name, f"numpy.{name}()", "reads") for name in ("array", "asarray")]
            for owner, name, shown, kind in places:
                _plain.append((owner, name, vars(owner).get(name)))
                setattr(owner, name, _listened(getattr(owner, name), shown, kind))
    before = _listener.host, _listener.reads
    try:
        _listener.host, _listener.reads = to.get("host"), to.get("reads")
        yield
    finally:
        _listener.host, _listener.reads = before
        with _lock:
            _users -= 1
            while not _users and _plain:
                owner, name, plain = _plain.pop()
                setattr(owner, name, plain) if plain is not None else delattr(owner, name)


@contextmanager
def refusing() -> Iterator[None]:
    """Inside, calls of the host by user code of this thread raise, and so does what makes a tensor as long as the data say."""
    lengths = _C.FixedLengthsScope()
    try:
        with _listening(host=refuse):
            yield
    finally:
        lengths.close()


def refuse(name: str, place: str) -> None:
    raise Break("host", _called(name), place)


def _python_random() -> Any:
    state: Any = numpy.random.get_state()
    name, words, *rest = state
    return random.getstate(), (name, words.tobytes(), *rest)


def _restore_random(state: Any) -> None:
    random.setstate(state[0])
    name, words, *rest = state[1]
    numpy.random.set_state((name, numpy.frombuffer(words, numpy.uint32), *rest))


@contextmanager
def draws_of_python() -> Iterator[None]:
    """Raises where random numbers of Python or NumPy were drawn inside; they are to be drawn again."""
    before = _python_random()
    try:
        yield
    finally:
        drawn = _python_random() != before
        if drawn:
            _restore_random(before)
    if drawn:
        raise Break("random", "it draws random numbers from Python's random or numpy.random, which would be the same in each call")


_READS = {"__bool__": "bool() of a tensor", "__float__": "float() of a tensor", "__int__": "int() of a tensor",
          "__index__": "an index made of a tensor", "__array__": "a NumPy call on a tensor", "item": ".item()",
          "tolist": ".tolist()", "numpy": ".numpy()", "nonzero": ".nonzero(), whose shape depends on values,"}


@contextmanager
def listing(breaks: list[Break]) -> Iterator[None]:
    """Appends to `breaks`, while an eager run goes on in this thread, every place where it reaches the host."""
    with _listening(host=lambda name, place: breaks.append(Break("host", _called(name), place)),
                    reads=lambda name, place: breaks.append(Break("value", f"{name} reads the value of a tensor", place))):
        yield
