"""Which `torch` there is: what is entered last says so, and each has the modules that were imported under it."""

from __future__ import annotations

import functools
import importlib
import sys
from types import FrameType, ModuleType
from typing import Any, Callable, ClassVar, Optional

Modules = dict[str, ModuleType]


def _package(name: str) -> str:
    return name.partition(".")[0]


def _is_of_torch(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(name, str) and _package(name) == "torch"


def _uses_torch(module: ModuleType) -> bool:
    try:
        return _is_of_torch(module) or any(map(_is_of_torch, list(vars(module).values())))
    except Exception:  # modules of all kinds of makers
        return False


def _running() -> set[str]:
    """The packages whose code is waiting for this call."""
    names = {"__main__", "sluice"}
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        names.add(_package(frame.f_globals.get("__name__") or "__main__"))
        frame = frame.f_back
    return names


def _take_out(packages: set[str]) -> Modules:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if _package(name) in packages}


def _users() -> set[str]:
    """Torch, and the packages that have something of whichever torch there is."""
    return {_package(name) for name, module in list(sys.modules.items()) if _uses_torch(module)} | {"torch"}


class Scope:
    """As a context manager, as a decorator, or by its creation alone: `finder` finds torch; None: nobody special."""

    _entered: ClassVar[list[Scope]] = []
    _imported: ClassVar[dict[bool, Modules]] = {True: {}, False: {}}  # by whether Sluice stands for torch, while it does not

    def __init__(self, finder: Any) -> None:
        self._finder = finder
        self._enter()

    @staticmethod
    def current() -> Any:
        """The finder in force."""
        return Scope._entered[-1]._finder if Scope._entered else None

    def _enter(self) -> None:
        before = Scope.current()
        Scope._entered.append(self)
        self._inside = True
        Scope._change(before, self._finder)

    def _leave(self) -> None:
        self._inside = False
        before = Scope.current()
        Scope._entered.remove(self)
        Scope._change(before, Scope.current())

    @staticmethod
    def _change(before: Any, after: Any) -> None:
        if before is after:
            return
        if before is not None:
            sys.meta_path.remove(before)
        if after is not None:
            sys.meta_path.insert(0, after)
        if (before is None) != (after is None):
            taken = _take_out(_users() - _running())
            if before is not None:  # what stands for torch is of that finder alone
                taken = {name: module for name, module in taken.items() if _package(name) != "torch"}
            Scope._imported[before is not None] = taken
            sys.modules.update(Scope._imported.pop(after is not None, {}))
        importlib.invalidate_caches()

    def __enter__(self) -> Scope:
        if not self._inside:
            self._enter()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._leave()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with this in force whenever it runs."""
        if self._inside:
            self._leave()

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside
