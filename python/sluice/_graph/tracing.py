"""build() becomes a graph: it runs once on traced tensors, and what it has read is watched from then on."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from sluice import _C
from sluice._base.structure import flatten
from sluice._base.trace import within
from sluice._graph.call import order_of
from sluice._graph.given import Given
from sluice._graph.refused import Refused
from sluice._graph.report import Report
from sluice._graph.zero import Zero


class Trace(NamedTuple):
    """The trace of build() for certain arguments."""

    captured: Any
    results: Any  # the nest of its results
    functions: Any  # of its host streams
    given: Given  # the arguments
    refused: Any
    report: Any


def traced(graph: Any, given: Given) -> Trace:
    """The trace of a graph's build() for arguments like these. REQUIRES: the tracing lock."""
    start = time.perf_counter()
    graph.config.observe_ranges(graph._blocks.values())
    refused, report = Refused(graph.name, graph.config), Report(graph)
    with refused:
        captured, results, functions = _trace(graph, given, refused, report.stack_depth)
    report.stage(f"build() traced in {time.perf_counter() - start:.3f} s")
    return Trace(captured, results, functions, given, refused, report)


def _trace(graph: Any, given: Given, refused: Any, stack_depth: int) -> Any:
    structure, leaves, names = given
    config, updates = graph.config, graph._updates
    batches = config.micro_batches
    scaling, tables = updates.scaling(), updates.tables(batches.n)
    updates.prepare(config.zero)
    scope = _C.TraceScope(graph.name, stack_depth, config._call_fixes)
    context = within(names=graph._module_names(), functions={}, stepped=[], optimizers=[optim for optim, _ in graph._optimizers],
                     schedules=graph._optimizers, batches=batches, scaling=scaling, tables=tables)
    scope.set_micro_batches(batches.n)
    try:
        with context as now:
            variables = list(graph._variables())
            for name, tensor in variables:
                scope.register_variable(name, tensor)
            inputs = [scope.add_input(n, t.dtype, batches.part(graph.name, n, t._shape), order_of(t)) for n, t in zip(names, leaves)]
            for t, leaf in zip(inputs, leaves):
                if leaf.requires_grad:
                    t.requires_grad_(True)
            inputs = [t.to_global(g.placement, g.sbp) if g._global else t for t, g in zip(inputs, leaves)]
            bound = graph._bound(structure.build(iter(inputs)))
            with (config.zero or Zero(restore_level=0)).restored(graph._blocks.values()):
                with graph._reading(), config.precision():
                    result = graph.build(*bound.args, **bound.kwargs)
            updates.trace()
            outputs, output_names = [], []
            results = flatten(result, "", outputs, output_names)
            named = [(_output_name(n), batches.pack(t)) for n, t in zip(output_names, outputs)]
            captured = scope.finish(named)
            refused.captured = captured
            functions = now.functions
    except _C.Error:
        refused.captured = scope.unfinished()
        raise
    finally:
        scope.close()
    del inputs, bound, result, outputs, named, context, now  # objects that are nowhere else are of this trace alone
    graph._watch.finish(graph, list(graph._named_modules()), variables, captured, functions)
    return captured, results, functions


def _output_name(path: Any) -> Any:
    if path == "":
        return "output"
    return f"output{path}" if path[0].isdigit() else path
