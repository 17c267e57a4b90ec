"""Graphs with a plan for each shape of their inputs (nn.Graph.with_dynamic_input_shape), or for each of their strides."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Any

from sluice import _C
from sluice._graph.call import order_of
from sluice._graph.compiling import compiled
from sluice._graph.families import Example
from sluice._graph.given import Given
from sluice._graph.report import family_report
from sluice._graph.plans import Blocks, Plans
from sluice._graph.tracing import Trace, traced


class _Member:
    def __init__(self, call: Any) -> None:
        self.call, self.users = call, 0


class ShapeCache(Plans):
    """An exact plan per shape of the arguments; the least recently used goes when there are more than `size`."""

    def __init__(self, graph: Any, size: int, shared: bool) -> None:
        super().__init__(graph.name)
        # Not a cycle: a graph that is dropped ends at once, and not when some thread collects garbage, maybe one of its own.
        self._graph, self._size, self._shared = weakref.ref(graph), size, shared
        self._blocks = Blocks(graph.config.arenas) if shared else None
        self._lock = threading.Lock()
        self._members: OrderedDict[Any, _Member] = OrderedDict()
        self._ordered: tuple[int, ...] = ()  # the arguments on whose strides plans depend
        self._late: list[BaseException] = []  # what plans that were let go failed with and no result has shown

    def calls(self) -> list[Any]:
        with self._lock:
            return [member.call for member in self._members.values()]

    @property
    def inputs(self) -> Any:
        return self._last.inputs

    @property
    def members(self) -> list[dict[str, tuple[int, ...]]]:
        return [{name: tuple(shape) for name, _, shape in call.inputs} for call in self.calls()]

    def __call__(self, given: Given) -> Any:
        return self._run(given, lambda call: call(given))

    def try_call(self, given: Given) -> Any:
        return self._run(given, lambda call: call.try_call(given))

    def prepare(self, given: Given) -> None:
        member = self._used(given)
        with self._lock:
            member.users -= 1

    def _run(self, given: Given, run: Any) -> Any:
        member = self._used(given)
        try:
            self._last = member.call
            return run(member.call)
        finally:
            with self._lock:
                member.users -= 1

    def _used(self, given: Given) -> _Member:
        """The plan for arguments of this shape, which stays while it is used."""
        while True:
            with self._lock:
                key = self._key(given.leaves)
                member = self._members.get(key)
                if member is not None:
                    self._members.move_to_end(key)
                    member.users += 1
                    return member
            graph = self._its_graph()
            graph._compile_once(given, lambda: self._key(given.leaves) not in self._members, lambda tracing: self.add(given, tracing))

    def _its_graph(self) -> Any:
        """REQUIRES: a call of it is under way."""
        return self._graph()

    def _key(self, leaves: list[Any]) -> Any:
        return self._shapes(leaves), tuple(order_of(leaves[i]) for i in self._ordered)

    def _shapes(self, leaves: list[Any]) -> tuple[Any, ...]:
        """The shapes for which there is a plan each."""
        return tuple(leaf._shape for leaf in leaves)

    def add(self, given: Given, tracing: Any) -> None:
        """Compiles for arguments of a new shape."""
        trace = traced(self._its_graph(), given)
        tracing.close()
        self.keep(trace)

    def keep(self, trace: Trace) -> None:
        """Compiles what was traced."""
        self._make_room()
        call = compiled(self._its_graph(), trace, self.arenas)
        if self._blocks:
            self._blocks.loaded(call)
        with self._lock:
            self._ordered = tuple(sorted({*self._ordered, *call.layouts}))
            self._members[self._key(trace.given.leaves)] = _Member(call)
        self._last = call

    @property
    def arenas(self) -> Any:
        """Memory that its plans share; None: each has its own."""
        return self._blocks and self._blocks.arenas

    def take(self, call: Any) -> None:
        """A plan that was made before. REQUIRES: it is the last that was loaded."""
        if self._blocks:
            self._blocks.loaded(call)
        with self._lock:
            self._ordered = tuple(sorted({*self._ordered, *call.layouts}))
            shapes = self._shapes([Example(dtype, shape) for _, dtype, shape in call.inputs])
            self._members[shapes, tuple(call.layouts.get(i) for i in self._ordered)] = _Member(call)
        self._last = call

    def _make_room(self) -> None:
        while True:
            with self._lock:
                idle = [key for key, member in self._members.items() if not member.users]
                if len(self._members) < self._size or not idle:
                    return
                session = self._members.pop(idle[0]).call.session
            try:
                session.synchronize()
            except (_C.TimeoutError, KeyboardInterrupt):
                raise  # it still runs
            except Exception as error:
                self._late.append(error)
            session.close()

    def synchronize(self) -> None:
        super().synchronize()
        if self._late:
            raise self._late.pop(0)

    def memory(self) -> Any:
        calls = self.calls()
        return family_report([call.session for call in calls], self._shared, self._blocks.held(calls) if self._blocks else {})

    def save(self, directory: str) -> None:
        calls = self.calls()
        if len(calls) == 1:
            return calls[0].save(directory)
        if any(call.results != calls[0].results for call in calls):
            raise _C.TypeError(f"save: graph '{self.name}' returns another structure for some shapes than for others; it must "
                               "be the same for all")
        sessions = [call.session for call in calls]
        family = _C.exact_family(self.name, [s.inputs() for s in sessions], [s.outputs() for s in sessions])
        _C.save_family(directory, family, sessions, {})


class LayoutCache(ShapeCache):
    """A plan per strides of the arguments, which have one shape, for a build() that writes to what may or may not be views of
    them: as eager code it does something else for each."""

    SIZE = 10

    def __init__(self, graph: Any) -> None:
        super().__init__(graph, self.SIZE, shared=False)

    def _shapes(self, leaves: list[Any]) -> tuple[Any, ...]:
        return ()

    def save(self, directory: str) -> None:
        calls = self.calls()
        if len(calls) > 1:
            raise _C.NotImplementedError(f"save: graph '{self.name}' was called with {len(calls)} memory layouts of its "
                                         "arguments, and has a plan for each; save a graph that was called with one layout")
        calls[0].save(directory)
