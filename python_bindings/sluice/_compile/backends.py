"""What runs graphs: by name, or a callable that is given one."""

from __future__ import annotations

from typing import Any, Callable

from sluice import _C

_NAMES = {"plan": "a plan of actors, as nn.Graph's", "eager": "the code itself, op by op",
          "debug": "the plan and the code, compared in each call"}
_registered: dict[str, Callable[..., Any]] = {}


def list_backends() -> list[str]:
    """The names that compile(backend=...) takes."""
    return sorted([*_NAMES, *_registered])


def register_backend(compiler: Any = None, *, name: str | None = None) -> Any:
    """Makes `compiler` a backend with a name, by default its own; also a decorator."""
    if compiler is None:
        return lambda compiler: register_backend(compiler, name=name)
    _registered[name or compiler.__name__] = compiler
    return compiler


def find(backend: Any, where: str) -> Any:
    """A name of Sluice's own, or a callable."""
    if callable(backend):
        return backend
    if backend == "inductor":  # what torch's default is called
        return "plan"
    if backend in _registered:
        return _registered[backend]
    if backend not in _NAMES:
        raise _C.ValueError(f"{where}: backend: got {backend!r}; must be a callable or one of {', '.join(map(repr, list_backends()))}")
    return backend
