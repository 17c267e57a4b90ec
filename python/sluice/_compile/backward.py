"""Plans of gradients: traced on the tape that the trace of the forward pass has left."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._base.trace import tracing_lock, within
from sluice.autograd.passes import retains_graph
from sluice._graph.families import Example

from sluice._compile.averages import Averages
from sluice._compile.breaks import refusing
from sluice._compile.capture import Traced


def gradients(outs: list[Tensor], leaves: list[Tensor], grads: list[Tensor]) -> list[Any]:
    """The gradients of `leaves`; None where there is none."""
    with within(differentiates=True), refusing():  # hooks
        return _C.grad(outs, leaves, grads, False, True, True) if leaves else []


def example_of(t: Any) -> Example:
    return Example(t.dtype, tuple(t.shape))


class Backward:
    """The plan of a program's gradients, where `mask` says which of its outputs have one. wrapper: whose averages they are to be."""

    def __init__(self, program: Any, mask: tuple[bool, ...], wrapper: Any = None) -> None:
        run, distinct = program.run, program.distinct
        outs = [t for t, o in zip(run.results.tensors, run.outputs) if o.kind == "plan" and o.grad]
        outs = [t for t, given in zip(outs, mask) if given]
        leaves = [t for t in run.inputs if t.requires_grad] + program.leaves
        self._fed = [i for i, saved in enumerate(distinct) if saved.kind != "object"]
        self.averages = None if wrapper is None else Averages(wrapper, leaves)
        given: list[Tensor] = []

        def unpack(number: int) -> Tensor:
            at, shape = program.saved_at[number]
            kind, value = distinct[at].kind, distinct[at].value
            t = value if kind == "object" else given[self._fed.index(at)]
            t = program.as_traced(value, t) if kind == "plan" else t
            return t if shape is None else t.reshape(shape)

        def build(inputs: Any) -> Any:
            given[:] = inputs[len(outs):]
            run.unpack = unpack
            grads = gradients(outs, leaves, list(inputs[:len(outs)]))
            self._there = [g is not None for g in grads]
            if self.averages is not None and not self.averages.covered(self._there):
                self.averages = None  # the wrapper sends what there is
            if self.averages is not None:
                grads = self.averages.traced(grads)
            return [g for g in grads if g is not None]

        self.graph = Traced(f"{program.name}_backward", program.reached, program.outer, build, program.environment)
        program.settings.configure(self.graph, program.device, trains=True)
        likes = [example_of(t) for t in outs] + [self._example(program, distinct[i]) for i in self._fed]
        with tracing_lock:
            trace = self.graph.traced(likes)
        given.clear()
        self.captured = trace.captured
        # A tensor that nobody else has is handed over, and not copied.
        self._donated = [len(outs) + n for n, i in enumerate(self._fed) if distinct[i].kind == "plan" and distinct[i].value >= program.num_results]
        donated = [trace.given.names[n] for n in self._donated]
        try:
            self._plan = self.graph.planned(trace, donated)
        except NotImplementedError:  # the plan would copy one of them
            self._donated = []
            self._plan = self.graph.planned(trace, [])
        program.counter.count("backward_plans")

    @staticmethod
    def _example(program: Any, saved: Any) -> Example:
        if saved.kind == "input":
            return example_of(program.run.inputs[saved.value])
        return Example(program.captured.outputs()[saved.value][1], program.saved_shape(saved.value))

    def __call__(self, grads: list[Tensor], saved: list[Tensor]) -> list[Any]:
        given = grads + [saved[i] for i in self._fed]
        if self._donated and retains_graph():
            for i in self._donated:
                given[i] = given[i].clone()
        made = iter(self._plan.submit(given))
        return [next(made) if there else None for there in self._there]
