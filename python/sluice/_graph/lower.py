"""lower(): what is traced, before it is compiled."""

from __future__ import annotations

from typing import Any, Callable

from sluice import _C
from sluice._base.trace import tracing_lock
from sluice._graph.compiling import compiled
from sluice._graph.function import FunctionGraph
from sluice._graph.graph import Graph
from sluice._graph.pass_options import trace_patterns_by
from sluice._graph.tracing import Trace, traced


class Lowered:
    """A traced graph. text() shows it, cost_analysis() says what it computes, compile() makes the plan of it."""

    def __init__(self, graph: Graph, trace: Trace) -> None:
        self._graph, self._trace = graph, trace

    def text(self) -> str:
        """The graph before any pass, as a bundle's graph.txt has it."""
        return self._trace.captured.text()

    def cost_analysis(self) -> dict[str, Any]:
        """The work of a step before any pass: "flops" (a fused multiply-add counts two), "bytes accessed" (each operand and
        each result once), and "ops", a list of the same by op, with its module, role and line. Views cost nothing.
        jax.stages."""
        ops = self._trace.captured.costs()
        for op in ops:
            op["bytes accessed"] = op.pop("bytes")
        return {"flops": sum(op["flops"] for op in ops), "bytes accessed": sum(op["bytes accessed"] for op in ops), "ops": ops}

    def compile(self) -> Graph:
        """The graph with its plan, to be called like the function: see its `plan`, `memory()`, `stats()`."""
        graph, trace = self._graph, self._trace

        def planned(tracing: Any) -> None:
            tracing.close()  # this graph has been traced
            graph.__dict__["_call"] = compiled(graph, trace)

        graph._compile_once(trace.given, compile=planned)
        return graph

    def __repr__(self) -> str:
        return f"Lowered('{self._graph.name}'; text(), cost_analysis(), compile())"


def lower(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Lowered:
    """Traces `function`, a Module or a Graph with arguments like these, and stops there.

        lowered = sluice.lower(f, x)
        print(lowered.text())      # the graph
        compiled = lowered.compile()
        compiled.plan, compiled.memory()
        y = compiled(x)

    Parameters of a Module are shared with the plan, both ways; tensors that a plain function reads from outside of its
    arguments are constants of the graph. Throws RuntimeError for a graph that is compiled, and for one with several plans
    (dims, with_dynamic_input_shape), which compile() makes together.
    """
    graph = function if isinstance(function, Graph) else FunctionGraph(function)
    if graph.is_compiled:
        raise _C.RuntimeError(f"lower: graph '{graph.name}' is compiled; lower it before the first call")
    if graph.config.dims or graph._several_shapes:
        raise _C.RuntimeError(f"lower: graph '{graph.name}' has several plans; compile(*arguments) makes them")
    given = graph._given(args, kwargs)
    with tracing_lock:
        return Lowered(graph, traced(graph, given))


trace_patterns_by(lower)
