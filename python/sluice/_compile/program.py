"""A compiled call: the plan of its forward pass, and those of its backward pass, made when they are first needed."""

from __future__ import annotations

import time
import weakref
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._base.parts import dense_parts
from sluice._base.trace import hooked, tracing_lock
from sluice.autograd.passes import wants_inputs
from sluice.nn.modules.module import Module

from sluice._compile import autotune, debugging, guards
from sluice._compile.averages import wrapper_of
from sluice._compile.backends import CompiledGraph, given_to
from sluice._compile.backward import Backward, example_of, gradients
from sluice._compile.breaks import Break
from sluice._compile.capture import Aliases, Output, Run, Traced
from sluice._compile.contents import Attributes
from sluice._compile.saved import Places, Saved
from sluice._compile.text import Lines
from sluice._base.grad_mode import no_grad

_MOST_BINDS = 16  # objects that are other ones at each call are left to Python


class Program:
    """For calls of one key.

    REQUIRES, of a call: arguments whose key and specs are those that it was made for.
    Thread safety: all but the constructor.
    """

    def __init__(self, name: str, function: Any, arguments: Any, environment: Any, settings: Any, counter: Any) -> None:
        start = time.perf_counter()
        self.name, self.environment, self.objects = name, environment, arguments.objects
        self.settings, self.counter = settings, counter
        self.key: Any = None  # of the calls that it is for
        self.group: Any = None  # of sizes, if it is for several
        self.owners = frozenset(id(o) for o in arguments.objects if isinstance(o, Module))
        self._tried: list[str] = []
        self.bound: Any = None
        self._binds = 0
        self.backward_ops: list[str] = []  # where all results have a gradient
        self._backwards: dict[Any, Backward] = {}
        modules, outer = environment.modules, dict(environment.tensors)
        own = [t for m in modules.values() for _, t in dense_parts((*m.named_parameters(), *m.named_buffers()))]
        inside = {id(t) for t in own}
        self.outer = {n: t for n, t in outer.items() if id(t) not in inside and t.is_contiguous() and not t._is_view()}
        self.reached = modules
        variables = own + list(self.outer.values())
        self.leaves = [t for t in _unique(variables) if t.requires_grad]
        self.modules = _unique(m for module in modules.values() for m in module.modules())
        if any(t._global for t in (*arguments.tensors, *variables)):
            raise Break("global", "global tensors are for nn.Graph")
        if environment.reads_grad:
            raise Break("backward", ".grad is read, which belongs to the caller and is not there while code is traced",
                        environment.reads_grad)
        if environment.iterator:
            raise Break("effect", f"it takes from the iterator {environment.iterator}, which a plan would do once only; give it the "
                                  "items")
        wants = _C.is_grad_enabled() and (bool(self.leaves) or any(t.requires_grad for t in arguments.tensors))
        attributes = Attributes(self.modules)
        with tracing_lock:
            try:
                self._trace(function, arguments, _unique(variables), wants, attributes)
            except BaseException:
                attributes.restore()
                environment.restore()
                raise
        self._submit = self._prepared(arguments.tensors)
        del self._traced
        call = self._graph._call
        order = {} if call is None else call.session.output_axes()
        self._axes = {i: order[name] for i, (name, _, _) in enumerate(self.captured.outputs()) if name in order}
        self._writes_variables = call is not None and call.session.writes_variables
        if self.writes_to_shared(arguments.tensors):
            raise Break("argument", f"{name} writes in place to memory that another argument, a parameter or a buffer has, too")
        self.seconds = time.perf_counter() - start

    def _prepared(self, tensors: list[Tensor]) -> Any:
        """The function that gives the results of the forward plan for tensors."""
        backend = self.settings.backend
        graph, trace = self._graph, self._traced
        if callable(backend):
            return given_to(backend, CompiledGraph(graph, trace), tensors, self.settings.asked_of_backend)
        # Results that only the backward pass reads may have any order of axes, and it takes them as they lie.
        graph.config._options["any_order"] = [name for name, _, _ in self.captured.outputs()[self.num_results:]]
        if self.settings.mode == "max-autotune":
            plan, self._tried = autotune.fastest(graph, trace, tensors, debugging.State(self, tensors))
        else:
            plan = graph.planned(trace, [])
        return plan.submit

    def _check_effects(self, attributes: Attributes, graph: Traced) -> None:
        changed = attributes.changed() or self.environment.changed() or next(iter(graph._watch.effects), None)
        if changed:
            raise Break("effect", f"it changes {changed}, which a plan would do once only; keep it in a buffer that is written in place, "
                                  "or change it outside")

    def _trace(self, function: Any, arguments: Any, variables: list[Tensor], wants: bool, attributes: Attributes) -> None:
        name, tensors = self.name, arguments.tensors
        # The device of the plan is that of the first tensor which is not on the cpu.
        self.device = next((t._device for t in (*variables, *tensors) if t.device.type != "cpu"), None)

        def traced(run: Run) -> Any:
            graph = Traced(name, self.reached, self.outer, run, self.environment)
            self.settings.configure(graph, self.device, exchange=wants, trains=wants)
            made = graph.traced(tensors)
            self._check_effects(attributes, graph)
            return graph, made

        run = Run(function, arguments, variables, wants, name)
        self._graph, self._traced = traced(run)
        lines = Lines(self._traced.captured.text())
        if run.shares_memory(lines):
            traced(Aliases(function, arguments, variables, False, name))
        self._grads = wants and any(o.grad for o in run.outputs)
        self.distinct: list[Saved] = []
        self.saved_at: dict[int, tuple[int, Any]] = {}
        if self._grads:
            places, count = Places(run, lines, self._probe_backward(run)), len(run.saved)
            run = Run(function, arguments, variables, True, name, places.keep)
            self._graph, self._traced = traced(run)
            if len(run.saved) != count:
                raise Break("effect", f"{name} does something else when it is traced again")
            self.distinct, self.saved_at = places.settled(run)
        elif wants:  # without what was saved
            run = Run(function, arguments, variables, False, name)
            self._graph, self._traced = traced(run)
        self.captured = self._traced.captured
        self.outputs, self.results, self.written = run.outputs, run.results, run.written
        self._has_views = any(o.kind == "view" for o in self.outputs)
        self.num_results, self.run = len(run.of_plan), run if self._grads else None
        self._inputs_with_grad = [i for i, t in enumerate(tensors) if t.requires_grad]
        self.random = any(v.startswith("generator") for v in self.captured.variables())
        if self.random and self.settings.options["fallback_random"]:
            raise Break("random", "it draws random numbers, and options={'fallback_random': True} wants those of eager code")

    def _probe_backward(self, run: Run) -> list[int]:
        """The numbers of what is saved that gradients of all outputs read. Whatever is saved comes as an input."""
        read: list[int] = []

        def unpack(number: int) -> Tensor:
            if number not in read:
                read.append(number)
            t = run.saved[number]
            return given[number] if t._traced else t

        given: dict[int, Tensor] = {}

        def build(inputs: Any) -> Any:
            places = iter(inputs)
            grads = [next(places) for _ in outs]
            given.update((n, next(places)) for n, t in enumerate(run.saved) if t._traced)
            run.unpack = unpack
            return [g for g in gradients(outs, leaves, grads) if g is not None]

        outs = [t for t, o in zip(run.results.tensors, run.outputs) if o.kind == "plan" and o.grad]
        leaves = [t for t in run.inputs if t.requires_grad] + self.leaves
        trace = Traced(f"{self.name}_backward", self.reached, self.outer, build, self.environment).traced(
            [example_of(t) for t in outs] + [example_of(t) for t in run.saved if t._traced])
        self.backward_ops = [node["op"] for node in trace.captured.nodes()]
        return sorted(read)

    # Calls

    def changed(self) -> str | None:
        """Names what the code has read and is not as it was when this was made; None: all is."""
        return self.environment.changed() or self._graph._watch.changed(self._graph)

    def bind(self, fitted: Any, modules: list[Any]) -> None:
        """Makes `bound`, which takes the arguments of calls like this one; None where Python has to look at each. modules: whose modes
        count."""
        self.bound = None
        ours, graphs = self.environment.identities(), self._graph._watch.identities()
        plain = fitted.cuts is None and isinstance(fitted.key, int) and self.outputs and all(o.kind == "plan" for o in self.outputs)
        if self._grads or self.written or self._writes_variables or self.device is not None:
            return
        if not plain or ours is None or graphs is None:
            return
        call = self._graph._call
        if self.settings.backend != "plan" or call.first_steps is not None or self._binds == _MOST_BINDS:
            return
        self._binds += 1
        settings = _C.SameObjects(entries=guards.identities(modules))
        kind, number = self.results.nest
        numbers = [number] if kind == "tensor" else range(len(self.outputs))
        values = [self.outputs[n].value for n in numbers]
        self.bound = _C.BoundCall(call.session, fitted.tensors, [graphs[0], ours, settings], graphs[1], values,
                                  None if kind == "tensor" else self.results.build)

    def writes_to_shared(self, tensors: list[Tensor]) -> bool:
        """Whether what it writes in place has the memory of something else that it reads: in a plan each has its own."""
        if not self.written and not self._writes_variables:
            return False
        written, variables = [tensors[i] for i in self.written], [t for _, t, _, _ in self.watched_memory()]
        return _C.overlap(written, tensors + variables) or (self._writes_variables and _C.overlap(tensors, variables))

    def variables(self) -> Any:
        """(name, tensor) of what the plan may read and write."""
        return self._graph._variables()

    def watched_memory(self) -> list[Any]:
        return self._graph._watch._memory

    def is_stale(self) -> bool:
        """It will never fit again: a parameter has other memory."""
        return any(t._impl != impl for _, t, impl, _ in self.watched_memory())

    def __call__(self, fitted: Any) -> Any:
        tensors = fitted.tensors
        made = self._submit(tensors)
        of_plan, given = made[:self.num_results], tensors
        if self.written:
            with no_grad():
                for i, value in zip(self.written, of_plan[len(of_plan) - len(self.written):]):
                    given[i].copy_(value)
        if self.device is not None:  # plans give their results to the host
            made = of_plan = [t.to(self.device) for t in of_plan] + made[self.num_results:]
        if self._grads:
            of_plan = self._recorded(made, given)
        outputs = [self._output(o, of_plan, given) for o in self.outputs]
        if self._has_views:
            self._see(outputs)
        return self.results.build(outputs if fitted.cuts is None else fitted.cut(outputs))

    @staticmethod
    def _output(output: Output, of_plan: list[Tensor], given: list[Tensor]) -> Tensor:
        if output.kind == "plan":
            return of_plan[output.value]
        if output.kind == "input":
            return given[output.value]
        return output.value.clone() if output.kind == "constant" else output.value

    def _see(self, outputs: list[Any]) -> None:
        """Puts views of other results in their places."""
        for i, output in enumerate(self.outputs):
            if output.kind == "view":
                base, shape, strides, offset = output.value
                outputs[base] = outputs[base].contiguous()  # as it lay when it was traced
                outputs[i] = outputs[base].as_strided(shape, strides, offset)

    def _recorded(self, made: list[Tensor], given: list[Tensor]) -> list[Tensor]:
        """The results with their history: a node whose backward runs a plan."""
        sources = {"plan": made, "input": given}
        saved = [s.value if s.kind == "object" else sources[s.kind][s.value] for s in self.distinct]
        versions = [t._version for t in saved]
        leaves = [given[i] for i in self._inputs_with_grad] + self.leaves
        places = [o.value for o in self.outputs if o.kind == "plan" and o.grad]

        def backward(grads: Any) -> list[Any]:
            for t, version in zip(saved, versions):
                if t._version != version:
                    raise _C.RuntimeError(f"backward: one of the variables needed for gradient computation has been modified by an inplace "
                                          f"operation: a {t.dtype.name}{tuple(t.shape)} saved by compiled '{self.name}' is at version "
                                          f"{t._version}; expected version {version} instead")
            if _C.is_grad_enabled():
                raise _C.NotImplementedError(f"compile: '{self.name}': gradients of gradients (create_graph=True) were asked for; compiled "
                                             "code has first ones only: call it without compile, or with backend='eager'")
            wrapper = wrapper_of(leaves) if self.settings.backend == "plan" and not wants_inputs() else None
            plan = self._backward(tuple(g is not None for g in grads), wrapper)
            if plan.averages is not None:
                wrapper._averaged_by(plan.averages)
            found = plan([g for g in grads if g is not None], saved)
            return found if wants_inputs() else _given(leaves, found)

        results = list(made[:self.num_results])
        for place, t in zip(places, _C.record_function(f"Compiled{self.name}Backward", leaves, [made[p] for p in places], backward)):
            results[place] = t
        return results

    def _backward(self, mask: tuple[bool, ...], wrapper: Any) -> Backward:
        key = mask if wrapper is None else (mask, weakref.ref(wrapper))
        found = self._backwards.get(key)
        if found is not None:
            return found
        with tracing_lock:
            if key not in self._backwards:
                self._backwards[key] = Backward(self, mask, wrapper)
            return self._backwards[key]

    def saved_shape(self, number: int) -> tuple[int, ...]:
        """The shape of a result of the forward plan, as the plan gives it."""
        shape = tuple(self.captured.outputs()[number][2])
        return tuple(shape[axis] for axis in self._axes[number]) if number in self._axes else shape

    def as_traced(self, number: int, saved: Tensor) -> Tensor:
        """A result of the forward plan with its axes as the code has them."""
        axes = self._axes.get(number)
        return saved if axes is None else saved.permute([axes.index(i) for i in range(len(axes))])

    def saved_bytes(self) -> int:
        """The bytes that the forward plan returns for the backward pass beside results and arguments."""
        outputs = self.captured.outputs()
        total = 0
        for _, dtype, shape in outputs[self.num_results:]:
            n = 1
            for size in shape:
                n *= size
            total += n * dtype.itemsize
        return total

    def ops(self) -> list[str]:
        return [node["op"] for node in self.captured.nodes()]

    def notes(self) -> list[str]:
        """Further lines of a report about it."""
        lines = self._memory_notes()
        lines += [f"saved for the backward pass beside arguments and results: {self.saved_bytes()} bytes"] if self._grads else []
        return lines + self._tried + (["it draws random numbers, which are not those of eager code"] if self.random else [])

    def _memory_notes(self) -> list[str]:
        call = self._graph._call
        spaces = call.session.session_memory() if call is not None else []
        computed, exchanged = (sum(space[name] for space in spaces for name in names) for names in (("arenas",), ("inputs", "outputs")))
        return [f"memory of the forward plan beside weights: {computed + exchanged} bytes, {exchanged} of them for inputs and results in "
                "flight"] if spaces else []

    def passes(self) -> list[str]:
        """Those that changed the graph, with how often."""
        call = self._graph._call
        return [f"{name} {changes}" for name, changes, _ in (call.session.passes() if call is not None else ()) if changes]

    def text(self) -> str:
        return self.captured.text()


def _given(leaves: list[Tensor], grads: list[Any]) -> list[Any]:
    """Gives each leaf that has no gradient yet, and no hooks, its own; what remains goes on through the tape.

    The tape copies what it gives to a leaf when it is the result of a plan, since it cannot see that nobody else has it.
    """
    rest = list(grads)
    for i, (leaf, grad) in enumerate(zip(leaves, grads)):
        if grad is not None and leaf.is_leaf and leaf.grad is None and leaf._impl not in hooked:
            leaf.grad, rest[i] = grad, None
    return rest


def _unique(things: Any) -> list[Any]:
    return list({id(thing): thing for thing in things}.values())
