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


_PLAIN = {str, int, float, bool, bytes, dict, list, tuple, set, type(None)}  # nothing of theirs is torch's


def _uses_torch(module: ModuleType) -> bool:
    """Whether it is of torch, or has something of torch's. Thousands of modules are asked, whenever torch changes."""
    try:
        for value in [module, *vars(module).values()]:
            if value.__class__ in _PLAIN:
                continue
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(name, str) and (name == "torch" or name.startswith("torch.")):
                return True
    except Exception:  # modules of all kinds of makers
        pass
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
    found = {"torch"}
    for name, module in list(sys.modules.items()):  # one module says it of its package: there are thousands
        if _package(name) not in found and _uses_torch(module):
            found.add(_package(name))
    return found


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
