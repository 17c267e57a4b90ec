"""Functions that record a call with a proxy take the place of functions of Python while something is traced.

Functions of C++ ask proxies themselves; those written in Python would compute with them. So they are replaced where code finds
them: in Sluice's own modules, in the modules of wrap(), and in the modules of the layers that are traced. A call without a
proxy, of another thread's too, goes to the function as it was.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from typing import Any, Callable, Iterable

from sluice._base.recorded import places
from sluice.fx.proxy import first_proxy

# Modules of Sluice with functions of Python that take tensors; of those that are imported, all public functions are recorded.
_MODULES = ("sluice", "sluice.nn.functional", "sluice.nn._root_functions", "sluice.nn._projections", "sluice.linalg", "sluice.special",
            "sluice.fft", "sluice.sparse._products", "sluice._tensor.oneflow", "sluice._tensor.numerics", "sluice._tensor.detection",
            "sluice._tensor.lowrank", "sluice._tensor.histograms")
# They ask or set something, and take no part in a graph.
_PLAIN = {"is_tensor", "is_storage", "typename", "compile", "save", "load", "vmap", "set_default_device", "lower", "export", "eval", "cond", "scan",
          "while_loop", "host_function"}


def recording(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, but a call with a proxy among its arguments becomes a node."""

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        proxy = first_proxy((args, kwargs))
        if proxy is None:
            return function(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    recorded._fx_recorded = True  # type: ignore[attr-defined]
    return recorded


def recording_method(method: Any) -> Callable[..., Any]:
    """The method of tensors, but a call with a proxy among its arguments becomes a node: table[x] of a tensor."""

    def recorded(self: Any, *args: Any) -> Any:
        proxy = first_proxy(args)
        return method(self, *args) if proxy is None else proxy.tracer.create_proxy("call_method", method.__name__, (self, *args), {})

    return recorded


def own_functions() -> Iterable[tuple[dict[str, Any], str, Any]]:
    """Sluice's public functions that are written in Python, and where they are."""
    for name in _MODULES:
        module = sys.modules.get(name)
        for key, value in list(vars(module).items()) if module is not None else ():
            if isinstance(value, types.FunctionType) and (key == "_assert" or not key.startswith("_")) and key not in _PLAIN:
                yield vars(module), key, value


_MISSING = object()


class Patches:
    """Replacements while a trace runs; close() puts all back.

    functions: recorded besides the known ones, wherever a traced layer's module has them.
    """

    def __init__(self, functions: Iterable[Any] = ()) -> None:
        self._before: list[tuple[dict[str, Any], str, Any]] = []
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []  # so that no other object gets an id
        self._looked_at: set[int] = set()
        for function in functions:
            self._of(function)
        for where, name, value in own_functions():
            self._put(where, name, self._of(value))
        for where, name in list(places.values()):
            value = where.get(name, _MISSING)
            builtin = getattr(builtins, name, None)
            if value is not _MISSING or builtin is not None:
                self._put(where, name, self._of(builtin if value is _MISSING else value))

    def _of(self, function: Any) -> Any:
        if getattr(function, "_fx_recorded", False):
            return function
        if id(function) not in self._made:
            self._made[id(function)] = recording(function)
            self._kept.append(function)
        return self._made[id(function)]

    def _put(self, where: dict[str, Any], name: str, value: Any) -> None:
        if where.get(name, _MISSING) is not value:
            self._before.append((where, name, where.get(name, _MISSING)))
            where[name] = value

    def look_at(self, frame_globals: dict[str, Any]) -> None:
        """Replaces what a module has imported by name."""
        if id(frame_globals) in self._looked_at:
            return
        self._looked_at.add(id(frame_globals))
        for name, value in list(frame_globals.items()):
            if id(value) in self._made and not name.startswith("__") and callable(value):
                self._put(frame_globals, name, self._made[id(value)])

    def look_at_module(self, module: Any) -> None:
        """All modules of Python in which the classes of a layer are written, but Sluice's."""
        for cls in type(module).__mro__:
            forward = cls.__dict__.get("forward")
            of_class = getattr(sys.modules.get(cls.__module__), "__dict__", None)
            for found in (getattr(forward, "__globals__", None), of_class):
                if isinstance(found, dict) and not str(found.get("__name__", "")).startswith("sluice"):
                    self.look_at(found)

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Replaces a class's method."""
        self._before.append((_Of(owner), name, owner.__dict__[name]))  # type: ignore[arg-type]
        setattr(owner, name, value)

    def close(self) -> None:
        while self._before:
            where, name, value = self._before.pop()
            if value is _MISSING:
                where.pop(name, None)
            else:
                where[name] = value


class _Of:
    """A class, written as a dict."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._owner, name, value)

