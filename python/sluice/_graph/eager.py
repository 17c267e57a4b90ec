"""Graphs without plans: set_mode("eager") makes calls of graphs run build() as any function, op by op."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._base.structure import flatten
from sluice._base.trace import tracing_lock, within
from sluice._graph.given import Given


class _Mode:
    eager = False  # of all threads


class set_mode:
    """"graph": calls of graphs run their plans, as it is at the start. "eager": they run build() op by op on the calling thread, and what
    the plan would do after it: the steps of optimizers, schedules and the gradient scaler. For debugging: print, breakpoints and
    `.item()` work in build(), and errors come from the line that makes them.

    From here on, or within a `with` block; in all threads. Results are the same but for rounding, and for numbers that rand() and its
    like draw (dropout's masks are the same). compile() and what asks about plans do as ever. A call in eager mode computes on the CPU,
    takes no plan's options, and returns when it has finished.
    """

    def __init__(self, mode: str) -> None:
        if mode not in ("graph", "eager"):
            raise ValueError(f"set_mode: got {mode!r}; must be 'graph' or 'eager'")
        self._before, _Mode.eager = _Mode.eager, mode == "eager"

    def __enter__(self) -> set_mode:
        return self

    def __exit__(self, *exc: Any) -> None:
        _Mode.eager = self._before


def get_mode() -> str:
    """"graph" or "eager": see set_mode."""
    return "eager" if _Mode.eager else "graph"


def is_eager() -> bool:
    """Whether the calling thread is to run build() itself; a graph that is traced is one all through."""
    return _Mode.eager and not _C.is_tracing()


def run(graph: Any, given: Given) -> Any:
    """The result of a call of the graph, with the same effects on modules, optimizers, schedules and the scaler as its plan's."""
    n = graph.config.micro_batches.n
    if n > 1:
        raise _C.NotImplementedError(f"graph '{graph.name}': a call is {n} micro-batches, which eager mode does not have; "
                                     "use set_mode('graph'), or no set_gradient_accumulation_steps()")
    graph.config.observe_ranges(graph._blocks.values())
    # build() has arguments of its own to write to; they are leaves, as in a trace.
    own = given.structure.build(iter([t.detach().clone().requires_grad_(t.requires_grad) for t in given.leaves]))
    with tracing_lock:  # gradients are there for one call at a time
        return _run(graph, own)


def _run(graph: Any, arguments: Any) -> Any:
    pairs, scaler = graph._updates.pairs, graph._updates.scaler
    for optim, _ in pairs:
        _ = optim.param_groups  # brings what plans have done
    params = [p for block in graph._blocks.values() for p in block.parameters()]
    params += [p for optim, _ in pairs for group in optim.param_groups for p in group["params"]]
    before = [(p, p.grad) for p in params]
    stepped: list[Any] = []
    hooks = [optim.register_step_post_hook(lambda optim, args, kwargs: stepped.append(optim)) for optim, _ in pairs]
    counts = [schedule and schedule._step_count for _, schedule in pairs]
    scaling, tables = graph._updates.scaling(), graph._updates.tables(1)
    try:
        with within(scaling=scaling, tables=tables, builds=True):
            for p in params:
                p.grad = None
            results: list[Any] = []
            bound = graph._bound(arguments)
            with graph.config.precision():
                nest = flatten(graph.build(*bound.args, **bound.kwargs), "", results, [])
            results = [t.detach().clone() for t in results]  # as they are before the updates
            for (optim, schedule), count in zip(pairs, counts):
                _step(optim, scaling, stepped)
                if schedule is not None and schedule._step_count == count:
                    schedule.step()
            if scaling is not None and scaler._seen and not scaling.updated:
                scaler.update()
            return nest.build(iter(results))
    finally:
        for hook in hooks:
            hook.remove()
        for p, grad in before:
            p.grad = grad


def _step(optim: Any, scaling: Any, stepped: list[Any]) -> None:
    """The step that build() has not made itself."""
    if any(optim is o for o in (*stepped, *(scaling.stepped if scaling is not None else ()))):
        return
    if scaling is None:
        optim.step()
    elif any(p.grad is not None for group in optim.param_groups for p in group["params"]):
        scaling.scaler.step(optim)
