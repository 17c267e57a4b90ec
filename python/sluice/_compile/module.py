"""The result of compile() for a module: the same module under another class, whose calls are compiled."""

from __future__ import annotations

import copy
import functools
from typing import Any

from sluice._compile.regions import region_of
from sluice.nn.modules.module import Module


class OptimizedModule(Module):
    """Wraps a module `_orig_mod`, with all its attributes: both have one `__dict__`, so that parameters, buffers, mode,
    hooks and whatever is assigned to one are the other's, and keys of states are the same. It is an instance of the
    module's class as well.

    Calls of `_orig_mod` stay eager. Copies and pickles are compiled anew, with the same settings.
    """

    __slots__ = ("_orig_mod", "_region")
    _orig_mod: Module
    _region: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("OptimizedModule: use sluice.compile(module)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._region(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_orig_mod", "_region"):
            raise AttributeError(f"compile: '{name}' of a compiled module cannot be assigned; compile the other module")
        super().__setattr__(name, value)

    def __deepcopy__(self, memo: Any) -> Any:
        return optimized(copy.deepcopy(self._orig_mod, memo), self._region.asked)

    def __copy__(self) -> Any:
        return optimized(copy.copy(self._orig_mod), self._region.asked)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return optimized, (self._orig_mod, self._region.asked)


@functools.lru_cache(maxsize=None)
def _class_of(plain: type) -> type:
    return type(f"Optimized{plain.__name__}", (OptimizedModule, plain), {"__slots__": (), "__module__": plain.__module__})


def optimized(module: Module, asked: dict[str, Any]) -> OptimizedModule:
    """asked: what compile() was given."""
    region = region_of(module, asked)
    made: OptimizedModule = object.__new__(_class_of(type(module)))  # type: ignore[arg-type]
    object.__setattr__(made, "__dict__", module.__dict__)
    for name, value in (("_orig_mod", module), ("_region", region)):
        getattr(OptimizedModule, name).__set__(made, value)
    return made
