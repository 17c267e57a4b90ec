"""Backends run graphs: they are known by name, or are a callable that is given one."""

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


class BackendError(_C.RuntimeError):
    """A fault of a backend: no reason to run something eagerly."""


class CompiledGraph:
    """The traced graph that a backend is given: text() shows it, ops() lists it; called with tensors like the example
    inputs it runs as a plan, and gives the list of its outputs."""

    def __init__(self, graph: Any, trace: Any) -> None:
        self.name, self._graph, self._trace = graph.name, graph, trace
        self._plan: Any = None

    def text(self) -> str:
        """The graph before any pass."""
        return str(self._trace.captured.text())

    def ops(self) -> list[str]:
        return [node["op"] for node in self._trace.captured.nodes()]

    @property
    def outputs(self) -> Any:
        """(name, dtype, shape) of each."""
        return self._trace.captured.outputs()

    def __call__(self, *inputs: Any) -> Any:
        if self._plan is None:
            self._plan = self._graph.planned(self._trace, [])
        return self._plan.submit(list(inputs))

    forward = __call__

    def __str__(self) -> str:
        return self.text()


def given_to(backend: Any, graph: CompiledGraph, tensors: list[Any], asked: dict[str, Any]) -> Any:
    """The result of a backend for a graph, as a function of a list of tensors."""
    name, expected = getattr(backend, "__name__", type(backend).__name__), len(graph.outputs)
    try:
        run = backend(graph, list(tensors), **asked)
    except Exception as error:
        raise BackendError(f"compile: backend {name!r}: raised {type(error).__name__}: {error}") from error
    if not callable(run):
        raise BackendError(f"compile: backend {name!r}: returned {type(run).__name__}; must return a callable")

    def submit(given: list[Any]) -> list[Any]:
        made = run(*given)
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(made) != expected:
            raise BackendError(f"compile: backend {name!r}: its callable gave {len(made)} outputs; the graph has {expected}")
        return made

    return submit
