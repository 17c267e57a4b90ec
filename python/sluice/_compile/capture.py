"""Traces a call twice: once to find out what its backward pass reads, then as the graph that is compiled."""

from __future__ import annotations

import collections
import inspect
import threading
import weakref
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._base.structure import Structure
from sluice.autograd.graph import saved_tensors_hooks
from sluice._graph.compiling import compiled
from sluice._graph.given import Given
from sluice._graph.graph import Graph
from sluice._graph.tracing import Trace, traced

from sluice._compile.breaks import Break, draws_of_python, refusing
from sluice._compile.guards import flags_kept
from sluice._compile.nests import Arguments, Results
from sluice._compile.text import Lines
from sluice.amp.autocast_mode import clear_autocast_cache
from sluice._base.grad_mode import no_grad


class _State(threading.local):
    depth = 0


_state = _State()


class compiling:
    """Inside, is_compiling()."""

    def __enter__(self) -> None:
        _state.depth += 1

    def __exit__(self, *exc: Any) -> None:
        _state.depth -= 1


def is_compiling() -> bool:
    """Whether this thread traces for sluice.compile."""
    return _state.depth > 0


class Traced(Graph):
    """A graph over the modules and tensors that compiled code reaches; `run` is called with the traced inputs."""

    _blocks: Any
    _tensors: Any
    _run: Any

    def __init__(self, name: str, modules: Any, tensors: Any, run: Any, environment: Any) -> None:
        super().__init__(name=name)
        self._blocks.update(modules)
        self.__dict__.update(_tensors=tensors, _run=run, _environment=environment, _signature=inspect.signature(self.build))
        self.__dict__["_own"] = frozenset(self.__dict__) | {"_own"}

    def build(self, *tensors: Tensor) -> Any:
        return self._run(tensors)

    def _variables(self) -> Any:
        yield from super()._variables()
        for name, tensor in self._tensors.items():
            yield f"outer.{name}", tensor

    def traced(self, tensors: Any) -> Trace:
        """The trace for inputs like these, tensors or families.Example. REQUIRES: the tracing lock."""
        n = len(tensors)
        structure = Structure("dict", ("tensors",), (Structure("tuple", None, (Structure("tensor"),) * n),))
        # The cache of casts holds traced values, which belong to one graph.
        clear_autocast_cache()
        try:
            return traced(self, Given(structure, list(tensors), [f"tensors.{i}" for i in range(n)]))
        finally:
            clear_autocast_cache()

    def planned(self, trace: Trace, donated: list[str]) -> Any:
        """donated: names of inputs whose memory calls take."""
        self.config._options["donated"] = donated
        call = compiled(self, trace)
        self.__dict__["_call"] = call
        return call


_STALE = "one of the variables needed for gradient computation has been modified by an inplace operation"


class Output:
    """The source of a result: "plan" (a number of its results), "input" (a number), "object" (itself), "constant" (a copy
    of it), "view" (the number of another result, and how it lies in that)."""

    __slots__ = ("kind", "value", "grad")

    def __init__(self, kind: str, value: Any, grad: bool = False) -> None:
        self.kind, self.value, self.grad = kind, value, grad


class Run:
    """One run of the function on traced tensors, within build()."""

    def __init__(self, function: Any, arguments: Arguments, known: Any, differentiate: bool, where: str, keep: Any = None) -> None:
        self.function, self.arguments, self.known, self.differentiate, self.where = function, arguments, known, differentiate, where
        self.keep = keep  # numbers of what is saved that the plan returns; None: all
        self.saved: list[Tensor] = []
        self._given: list[Tensor] = []  # what is saved, as the function has it
        self._versions: list[int] = []
        self.stale: list[bool] = []
        self.unpack: Any = None
        self.results: Any = None

    def _hooks(self) -> tuple[Any, Any]:
        """The functions that pack and unpack for the tape. It doesn't keep this alive: the results here have the tape, and
        a cycle through the tape would never be collected."""
        run: Any = weakref.ref(self)
        return lambda tensor: run()._packed(tensor), lambda number: run()._unpacked(number)

    def _packed(self, tensor: Tensor) -> int:
        self._given.append(tensor)
        self._versions.append(tensor._version)
        with no_grad():
            self.saved.append(_value_of(tensor))
        return len(self.saved) - 1

    def _unpacked(self, number: int) -> Tensor:
        if self.results is None:  # gradients that the function itself asks for
            if self._given[number]._version != self._versions[number]:
                raise RuntimeError(_STALE)
            return self.saved[number]
        if self.stale[number]:
            raise RuntimeError(_STALE)
        return self.unpack(number)

    def __call__(self, inputs: Any) -> Any:
        self.inputs = list(inputs)[:len(self.arguments.tensors)]
        args, kwargs = self.arguments.build(iter(self.inputs))
        # Versions tell what the function writes in place: those of inputs, and below those of saved tensors, which a
        # backward pass must not read after a write.
        before = [t._version for t in self.inputs]
        with refusing(), draws_of_python(), flags_kept(), compiling():
            if self.differentiate:
                with saved_tensors_hooks(*self._hooks()):
                    result = self.function(*args, **kwargs)
            else:
                result = self.function(*args, **kwargs)
        self._check_arguments(args, kwargs)
        self.results = Results(result, self.where)
        self.stale = [t._version != version for t, version in zip(self._given, self._versions)]
        self.written = [i for i, (t, version) in enumerate(zip(self.inputs, before)) if t._version != version]
        self._check_written()
        self._sort()
        saved = range(len(self.saved)) if self.keep is None else self.keep
        self.of_plan = [t for t in self.plan_results] + [self.inputs[i] for i in self.written]
        self.saved_at = {n: len(self.of_plan) + at for at, n in enumerate(n for n in saved if self.saved[n]._traced)}
        return self.of_plan + [self.saved[n] for n in self.saved_at]

    def _check_arguments(self, args: Any, kwargs: Any) -> None:
        # The function has run on traced tensors. If it put some of them into a list of the caller's, they would be
        # there after the trace, with no value.
        now = Arguments(args, kwargs)
        if now.key != self.arguments.key or any(a is not b for a, b in zip(now.tensors, self.inputs)):
            raise Break("argument", f"{self.where} changes a list or dict that it was given")

    def _check_written(self) -> None:
        given = [t._impl for t in self.arguments.tensors]
        for i in self.written:
            if self.inputs[i].requires_grad or self.arguments.tensors[i].requires_grad:
                raise Break("argument", f"{self.where} writes in place to an argument that has, or gets, a gradient")
            if given.count(given[i]) > 1:
                raise Break("argument", f"{self.where} writes in place to a tensor that was given twice")
        for tensor in self.known:
            if tensor.is_leaf and tensor.grad is not None:
                raise Break("backward", f"{self.where} calls backward(), whose .grad belongs to the caller; compile the step with "
                                        "nn.Graph.trace(step, state=[model, optimizer])")

    def _sort(self) -> None:
        self.outputs: list[Output] = []
        self.plan_results: list[Tensor] = []
        numbers = {id(t): i for i, t in enumerate(self.inputs)}
        objects = {id(t) for t in self.known}
        views = self._views()
        for i, t in enumerate(self.results.tensors):
            if id(t) in numbers:
                self.outputs.append(Output("input", numbers[id(t)]))
            elif id(t) in views:
                self.outputs.append(Output("view", (views[id(t)], t.shape, t.stride(), t.storage_offset())))
            elif t._traced:
                self.outputs.append(Output("plan", len(self.plan_results), t.requires_grad))
                self.plan_results.append(t)
            elif id(t) in objects:
                self.outputs.append(Output("object", t))
            elif _C.was_adopted(t) and self._is_alone(t):
                self.outputs.append(Output("plan", len(self.plan_results), t.requires_grad))
                self.results.tensors[i] = _value_of(t)  # the tensor itself has its gradient for as long as it is traced only
                self.plan_results.append(self.results.tensors[i])
            elif _C.touches_graph(t):
                raise Break("alias", f"{self.where} returns a tensor that shares the memory of a parameter or buffer")
            else:
                self.outputs.append(Output("constant", t))

    def _views(self) -> dict[int, int]:
        """The results that share memory with other results: each with the number of the tensor behind it, which becomes a result."""
        results = self.results.tensors
        there = {id(t) for t in (*self.inputs, *self.known)}
        behind = {id(t): t if t._base is None else t._base for t in results if t._traced or _C.was_adopted(t)}
        count = collections.Counter(map(id, behind.values()))
        found = {}
        for t in list(results):
            base = behind.get(id(t), t)
            if base is t or count[id(base)] == 1 or id(base) in there:
                continue
            if not base.is_contiguous():
                raise Break("alias", f"{self.where} returns results that share memory, which does not lie in order; return clones of them")
            at = next((i for i, other in enumerate(results) if other is base), len(results))
            if at == len(results):
                results.append(base)
            found[id(t)] = at
        return found

    def _is_alone(self, tensor: Tensor) -> bool:
        """Whether no other result has the memory of `tensor`, which the function has made."""
        return [t.untyped_storage().data_ptr() for t in self.results.tensors if not t._traced].count(tensor.untyped_storage().data_ptr()) == 1

    def shares_memory(self, lines: Lines) -> bool:
        """Whether a result may be a view of what was there before the call."""
        return any(t._is_view() or lines.is_given(lines.outputs[i]) for i, t in enumerate(self.plan_results))


def _value_of(tensor: Tensor) -> Tensor:
    """The content of a tensor that the function has made and written to, as a traced tensor; else the tensor."""
    return tensor.clone() if _C.was_adopted(tensor) else tensor


class Aliases(Run):
    """A run to find out whether results share the memory of arguments, parameters or buffers: it writes to them."""

    def __call__(self, inputs: Any) -> Any:
        super().__call__(inputs)
        with no_grad():
            before = [t._version for t in self.plan_results]
            for i, t in enumerate(self.inputs):
                self._try(t, before, f"argument {i}")
            for t in self.known:
                self._try(t, before, "a parameter, a buffer or a tensor from outside")
        return ()

    def _try(self, tensor: Tensor, before: Any, what: str) -> None:
        # To write a tensor's own values back changes nothing but its version, and the version of everything that
        # shares its memory.
        tensor.copy_(tensor.clone())
        if any(t._version != version for t, version in zip(self.plan_results, before)):
            raise Break("alias", f"{self.where} returns a view of {what}; return a clone() of it")
