"""The facts that modules must know of the graph being traced on this thread."""

import contextlib
import threading
from typing import Any, Iterator, NamedTuple

from sluice import _C


class Context(NamedTuple):
    """What runs on a thread, for what is called there. It never changes: `within` puts another one in its place for a while."""

    builds: bool = False  # build() of a graph is run eagerly
    names: Any = None  # id(module) -> "model.layer1", while a graph is traced
    functions: Any = None  # name -> Python function of its host streams
    stepped: Any = None  # optimizers and schedules whose step() build() called itself
    optimizers: Any = ()  # of the graph
    schedules: Any = ()  # of the graph, with their optimizers: (optimizer, schedule)
    batches: Any = None  # MicroBatches of the graph
    tables: Any = None  # sparse.Tables of a build() whose graph has sparse optimizers, traced or eager
    differentiates: bool = False  # gradients of compiled code are traced: hooks of leaves wait for those of a call
    regions: Any = None  # _compile.dispatch.Children of what runs eagerly: of a module, how it is compiled
    translate: Any = None  # what a function that jit.to_static has made calls in place of a function, while a graph is traced
    moves: Any = None  # told of each stage of preprocessing of a graph that is traced for profiler.advise_placement()
    scaling: Any = None  # amp.in_graph.Scaling of a build() whose graph has a GradScaler, traced or eager


class _Thread(threading.local):
    now = Context()


running = _Thread()


@contextlib.contextmanager
def within(**changes: Any) -> Iterator[Context]:
    """Inside, this thread's context has these changes."""
    before = running.now
    running.now = inside = before._replace(**changes)
    try:
        yield inside
    finally:
        running.now = before


# Leaves that have, or had, hooks on their gradients, by `_impl`.
hooked: set[int] = set()

# Held while a graph is traced: its parameters and buffers stand for values of the graph meanwhile, and other graphs may
# have the same.
tracing_lock = threading.RLock()


class checkpoint_scope:
    """Values that nodes made inside give to each other are computed again for the backward pass, and not kept, but for
    those that the policy keeps."""

    def __init__(self, policy="nothing_saveable"):
        self._policy = policy

    def __enter__(self):
        self._scope = _C.CheckpointScope(self._policy)

    def __exit__(self, *exc):
        self._scope.close()


class module_scope:
    """Nodes made inside belong to the module `name`."""

    def __init__(self, name):
        self._name = name

    def __enter__(self):
        self._scope = _C.ModuleScope(self._name)

    def __exit__(self, *exc):
        self._scope.close()
