"""Plan families: graphs with plans for several extents of named dims (GraphConfig.set_dims)."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from typing import Any, NamedTuple

from sluice import _C
from sluice._C import fn
from sluice._tensor.creation import zeros
from sluice._base.progress import with_progress
from sluice._base.trace import tracing_lock
from sluice._base.grad_mode import no_grad
from sluice._graph.compiling import compiled
from sluice._graph.donation import check_dims, donated_leaves
from sluice._graph.given import Given
from sluice._graph.report import family_report
from sluice._graph.plans import Blocks, Plans
from sluice._graph.tracing import Trace, traced


class Example(NamedTuple):
    """The facts about an argument that tracing has to know."""

    dtype: Any
    shape: tuple[int, ...]
    requires_grad: bool = False

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.shape

    @property
    def _global(self) -> None:
        return None

    def is_contiguous(self) -> bool:
        return True


class FamilyCall(Plans):
    """A plan family (plan/family/family.h): a call runs the smallest member that fits."""

    def __init__(self, family: Any, calls: list[Any], blocks: Blocks | None = None, builder: Builder | None = None) -> None:
        super().__init__(calls[-1].name)
        self._plans = family, calls  # changed together
        self._blocks, self._builder = blocks, builder
        shapes = family.input_shapes([high for _, _, high, _ in family.dims])
        self.inputs = [(name, dtype, tuple(shape)) for (name, dtype, _), shape in zip(calls[-1].inputs, shapes)]
        self._axes, self._output_axes = family.input_axes, family.output_axes
        self._last = calls[-1]

    def calls(self) -> list[Any]:
        return self._plans[1]

    @property
    def members(self) -> list[dict[str, int]]:
        family, _ = self._plans
        return [{dim[0]: extent for dim, extent in zip(family.dims, extents)} for extents in family.members]

    def __call__(self, given: Given) -> Any:
        return self._run(given, try_only=False)

    def try_call(self, given: Given) -> Any:
        """None, and nothing submitted, where a call would block; one that is split may block after its first part."""
        return self._run(given, try_only=True)

    def prepare(self, given: Given) -> None:
        """All plans are there."""

    def _run(self, given: Given, try_only: bool) -> Any:
        family, calls = self._plans
        leaves = self._last.check(given)
        extents = family.extents_of([leaf._shape for leaf in leaves])
        if self._builder is not None:
            self._builder.count(self, extents)
        parts = []
        for member, start, size in family.parts_of(extents):
            call = calls[member]
            inputs = [_fit(leaf, axes, start, size, family.members[member]) for leaf, axes in zip(leaves, self._axes)]
            outputs = call.session.try_call(inputs) if try_only and not parts else call.submit(inputs)
            if outputs is None:
                return None
            self._last = call
            parts.append([_cut(*result, size) for result in zip(outputs, self._output_axes)])
        if len(parts) == 1:
            return call.results.build(iter(parts[0]))
        split = next(d for d, dim in enumerate(family.dims) if dim[3] == "split")
        joined = [fn.cat(pieces, axes.index(split)) for pieces, axes in zip(zip(*parts), self._output_axes)]
        return call.results.build(iter(joined))

    def add(self, extents: list[int], call: Any) -> None:
        """One more member, for calls from now on. REQUIRES: one thread at a time."""
        family, calls = self._plans
        family = family.with_member(extents)
        _C.check_member(family, len(calls), call.session)
        self._plans = family, [*calls, call]

    def memory(self) -> Any:
        calls = self.calls()
        return family_report([call.session for call in calls], True, self._blocks.held(calls) if self._blocks else {})

    def save(self, directory: str) -> None:
        family, calls = self._plans
        _C.save_family(directory, family, [call.session for call in calls], {})


class Builder:
    """Makes the exact plan of extents that recur, on a thread of its own, for dims that ask for it (Dim.exact_after)."""

    def __init__(self, graph: Any, dims: list[Any], trace: Any, compile: Any) -> None:
        self._graph, self._after = graph, [dim.exact_after for dim in dims]
        self._trace, self._compile = trace, compile
        self._lock = threading.Lock()
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._building = threading.Lock()
        self.threads: list[threading.Thread] = []  # all that there were

    def count(self, family_call: FamilyCall, extents: list[int]) -> None:
        family, _ = family_call._plans
        member = family.members[family.parts_of(extents)[0][0]]
        wanted = tuple(e if after else m for e, m, after in zip(extents, member, self._after))
        if wanted == tuple(member):
            return
        with self._lock:
            self._counts[wanted] += 1
            due = max(after for e, m, after in zip(wanted, member, self._after) if e != m)
            if self._counts[wanted] != due or len(family.members) + len(self.threads) >= _C.most_members:
                return
        with tracing_lock:
            trace = self._trace(list(wanted))
        thread = threading.Thread(target=self._build, args=(family_call, list(wanted), trace), name=f"build {self._graph.name}")
        thread.start()
        with self._lock:
            self.threads.append(thread)

    def _build(self, family_call: FamilyCall, extents: list[int], trace: Any) -> None:
        try:
            with self._building:
                family_call.add(extents, self._compile(trace))
        except Exception as error:
            warnings.warn(f"graph '{self._graph.name}': the exact plan for {extents} could not be compiled, and the other "
                          f"plans go on serving it: {error}", stacklevel=2)


def _fit(tensor: Any, axes: list[int], start: list[int], size: list[int], capacity: list[int]) -> Any:
    """The rows of a part, filled up with zeros to what the member takes."""
    shape = tuple(n if d < 0 else capacity[d] for n, d in zip(tensor._shape, axes))
    cut = any(d >= 0 and size[d] != n for n, d in zip(tensor._shape, axes))
    if not cut and shape == tensor._shape:
        return tensor
    with no_grad():
        rows = tensor if tensor.device.type == "cpu" else tensor.to("cpu")
        for axis, d in enumerate(axes):
            if d >= 0:
                rows = rows.narrow(axis, start[d], size[d])
        if shape == rows._shape:
            return rows
        filled = window = zeros(shape, dtype=tensor.dtype)
        for axis, d in enumerate(axes):
            if d >= 0:
                window = window.narrow(axis, 0, size[d])
        window.copy_(rows)
        return filled


def _cut(tensor: Any, axes: list[int], size: list[int]) -> Any:
    """A result without the rows of the padding: a view, which waits for nothing."""
    for axis, d in enumerate(axes):
        if d >= 0 and tensor._shape[axis] != size[d]:
            tensor = tensor.narrow(axis, 0, size[d])
    return tensor


def bound_inputs(graph: str, dims: dict[str, dict[int, Any]], names: list[str], leaves: list[Any]) -> tuple[list[Any], list[Any]]:
    """The dims that set_dims() binds, and (name, dtype, [(dim, size)]) of each argument."""
    found: list[Any] = []
    unknown = [name for name in dims if name not in names]
    if unknown:
        raise _C.ValueError(f"graph '{graph}': set_dims names '{unknown[0]}'; its arguments are {names}")
    ports = []
    for name, leaf in zip(names, leaves):
        bound = dims.get(name, {})
        if leaf._global:
            raise _C.NotImplementedError(f"graph '{graph}': argument '{name}' is a global tensor; set_dims takes local "
                                         "tensors only")
        axes = [(-1, n) for n in leaf._shape]
        for axis, dim in bound.items():
            if not -len(axes) <= axis < len(axes):
                raise _C.IndexError(f"graph '{graph}': set_dims binds axis {axis} of '{name}', which has shape {leaf._shape}")
            if dim not in found:
                if any(dim.name == other.name for other in found):
                    raise _C.ValueError(f"graph '{graph}': set_dims has two dims '{dim.name}'; use one object for one dim")
                found.append(dim)
            axes[axis] = (found.index(dim), 0)
        ports.append((name, leaf.dtype, axes))
    return found, ports


def compile_family(graph: Any, given: Given, tracing: Any) -> FamilyCall:
    """All members of the family that the graph's config declares: traced one after another, then compiled."""
    structure, leaves, names = given
    dims, ports = bound_inputs(graph.name, graph.config.dims, names, leaves)
    check_dims(graph.name, donated_leaves(graph.name, graph.config.donated, names, leaves), dims, ports)
    members = _C.all_extents([list(dim.buckets) for dim in dims])
    family = _C.Family(graph.name, [(d.name, d.min, d.max, d.fit) for d in dims], ports, members)
    family.extents_of([leaf._shape for leaf in leaves])  # what the first call says is checked as that of any other

    def traced_for(extents: list[int]) -> Trace:
        shapes = family.input_shapes(extents)
        return traced(graph, Given(structure, [Example(t.dtype, tuple(s), t.requires_grad) for t, s in zip(leaves, shapes)], names))

    traces = [traced_for(extents) for extents in members]
    probes = family.probes()
    different = [t for t in traces if t.results != traces[-1].results]
    if different:
        raise _C.TypeError(f"graph '{graph.name}': build() returns another structure for some sizes than for others; it must "
                           "be the same for all")
    family.bind_outputs(members + probes, [t.captured.outputs() for t in [*traces, *map(traced_for, probes)]])
    tracing.close()  # other graphs may be traced while this one is compiled
    blocks = Blocks(graph.config.arenas)

    def loaded(trace: Trace) -> Any:
        call = compiled(graph, trace, blocks.arenas)
        blocks.loaded(call)
        return call

    calls: list[Any] = [None] * len(members)
    # The largest first, as the others then have room in its memory.
    order = sorted(range(len(members)), key=lambda m: [-n for n in members[m]])
    for m in with_progress(order, f"graph '{graph.name}': compiling its plans", shown=True):
        calls[m] = loaded(traces[m])
        _C.check_member(family, m, calls[m].session)
    builder = Builder(graph, dims, traced_for, loaded) if any(dim.exact_after for dim in dims) else None
    return FamilyCall(family, calls, blocks, builder)
