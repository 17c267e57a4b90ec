"""nn.Graph: a network, its backward pass and its optimizers as one plan of actors."""

from __future__ import annotations

import contextlib
import html
import inspect
import itertools
import threading
import warnings
from collections import OrderedDict
from numbers import Integral
from typing import Any, Callable, TypeVar

from sluice import _C
from sluice._C import Tensor
from sluice._base.parts import dense_parts
from sluice._base.trace import tracing_lock
from sluice.nn.debug import Debug
from sluice._graph import eager, runtime_state, state
from sluice._graph.awaiting import Awaiting
from sluice._graph.compiling import compiled
from sluice._graph.config import GraphConfig
from sluice._graph.families import compile_family
from sluice._graph.given import Given, taken_apart
from sluice._graph.inspection import Inspection
from sluice._graph.report import graph_repr
from sluice._graph.shape_cache import LayoutCache, ShapeCache
from sluice._graph.tracing import traced
from sluice._graph.updates import Updates, check_can_compile_again
from sluice._graph.watch import Watch
from sluice.nn.modules._arrays import with_tensors
from sluice.nn.modules._config import ModuleConfig
from sluice.nn.modules.module import Module

_counter = itertools.count()


_G = TypeVar("_G", bound="Graph")


class Graph(Inspection):
    """Subclass with __init__ and build(); call like a Module. The first call traces build() and compiles a plan.

    Modules assigned to attributes share their parameters with the plan, both ways. Calls are asynchronous and
    pipelined: results are tensors whose contents arrive later; reading them waits.

    A call sees what there is when it is made. If build() would do something else than when it was traced, since a module
    has another number as attribute, or a parameter other memory, the graph is compiled again: see `sluice._graph.watch`.
    Modules keep the mode that `train()` and `eval()` had set at the first call.
    """

    config: GraphConfig
    name: str
    _MANY_CHANGES = 5  # after which it warns that it is compiled again and again
    _environment: Any = None  # guards that somebody has besides, of the code that build() calls
    _several_shapes: tuple[int, bool] | None = None  # the size of a cache of plans per shape, and whether they share memory

    @staticmethod
    def with_dynamic_input_shape(*, size: int = 10, enable_shared: bool = True) -> Callable[[type[_G]], type[_G]]:
        """A decorator of graph classes: each shape of the inputs gets a plan of its own when it is first called.

        size: plans kept; with one more, the one that was called longest ago is let go.
        enable_shared: the plans use the same memory, so that together they need as much as the largest; one at a time then
            has steps in flight. They always share the variables. If shapes grow, a plan that needs more than those before
            it gets new memory: call the largest first.

        build() is traced once for each shape. Saved, the plans that there are become a family, which takes their shapes. See
        `GraphConfig.set_dims` for a few plans that serve all sizes.
        """
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(f"with_dynamic_input_shape: size is {size!r}; must be an int of at least 1")

        def decorate(graph: type[_G]) -> type[_G]:
            graph._several_shapes = size, bool(enable_shared)
            return graph

        return decorate

    @staticmethod
    def trace(function: Any = None, *, state: Any = (), name: str | None = None, dynamic: bool = False) -> Any:
        """A decorator: the graph that calls a function, or a module, with its arguments. Called like it, and the first call compiles it.

            @sluice.nn.Graph.trace(state=[model, optimizer])
            def train_step(x, y):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                return loss

        state: what the function uses besides its arguments and writes, in a list or by name: modules, optimizers, schedules, a
            GradScaler, tensors. Optimizers and schedules that the function does not step itself step at its end.
        dynamic: there is a plan for each shape of the arguments, as with with_dynamic_input_shape().
        """
        from sluice._graph.function import FunctionGraph

        if function is None:
            return lambda function: FunctionGraph(function, state, name, dynamic)
        return FunctionGraph(function, state, name, dynamic)

    def __init__(self, *, name: str | None = None) -> None:
        self.__dict__.update(_blocks=OrderedDict(), _updates=Updates(), _call=None, _compiling=None, _captured=None, _awaiting=None, _positional=0,
                             _watch=Watch(), _changes=0, _saves_runtime_state=True, _debug=Debug(), config=GraphConfig(),
                             name=name or f"{type(self).__name__}_{next(_counter)}")
        self.__dict__["_own"] = frozenset(self.__dict__)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: build() must be defined")

    def __setattr__(self, name: Any, value: Any) -> None:
        if "_blocks" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}: call super().__init__() before assigning '{name}'")
        if isinstance(value, Module):
            self._blocks[name] = value
        object.__setattr__(self, name, value)

    def add_optimizer(self, optim: Any, lr_sch: Any = None, is_sparse: Any = None) -> None:
        """`optim` updates its parameters at the end of each call, in the plan; `lr_sch` steps there, too.

        Hyperparameters may be changed between calls: of the learning rate the plan knows, and for others the graph is compiled
        again, once for each. So it is when the optimizer's state was cleared.

        is_sparse: of the tables of nn.Embedding a step reads and writes those rows, and their state, that the call has looked up, as
            torch.optim.SparseAdam does; how long it takes does not depend on how many there are. SGD, Adam, AdamW, LazyAdam, Adagrad.
            Such a table has no .grad, so that clipping of norms leaves it out.
        """
        if self.is_compiled:
            raise RuntimeError(f"add_optimizer: graph '{self.name}' is compiled; add optimizers before the first call")
        self._updates.add(optim, lr_sch, is_sparse)

    def set_grad_scaler(self, grad_scaler: Any) -> None:
        """The plan scales losses where backward() begins, unscales gradients where optimizers step, leaves out a step whose gradients
        overflow, and then adapts the scale: amp.GradScaler, amp.StaticGradScaler. build() may call scale(), unscale_(), step() and
        update() itself, as with torch."""
        if self.is_compiled:
            raise RuntimeError(f"set_grad_scaler: graph '{self.name}' is compiled; set it before the first call")
        self._updates.set_scaler(grad_scaler)

    @property
    def _optimizers(self) -> Any:
        return self._updates.pairs

    def state_dict(self) -> dict[str, Any]:
        """All that the next steps depend on: "modules" by name, "optimizers", "schedules" and "grad_scaler" with their states, "tensors",
        the attributes of the graph and its modules that are neither parameters nor buffers, and, once it is known that the graph draws
        random numbers, the state of the default "generator". For `torch.save`; the tensors are the graph's own, as with torch.
        """
        return state.saved(self)

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:
        """Goes on where state_dict() was, before the first call or after it: tensors are written in place, so that the plan there is sees
        them. The generator of the state becomes that of the process. strict: modules and tensors must be the same; RuntimeError."""
        self.config.observe_ranges(self._blocks.values())  # buffers that the state has
        state.load(self, state_dict, strict)

    def runtime_state_dict(self, destination: Any = None, with_eager: bool = False) -> dict[str, Any]:
        """The compiled plan, for a graph of the same program that then neither traces build() nor compiles: for `sluice.save`.

        destination: a dict to write it to. with_eager: with what the graph's own variables hold (parameters, buffers, the state of
        optimizers); else the graph that loads it has these itself. Other tensors that build() has captured are always in
        it.

        A graph with host functions, over several devices or with named dims has a bundle instead: `sluice.save(graph,
        path)`.
        """
        return runtime_state.saved(self, destination, with_eager)

    def load_runtime_state_dict(self, state_dict: Any, *, warmup_with_run: bool = False) -> None:
        """Takes the plan of runtime_state_dict() in place of the first call's tracing and compiling. ValueError where compiling would
        give another plan now: options, attributes of modules that build() has read, their modes, constants of optimizers.

        warmup_with_run: run a step of zeros, too, so that the next takes no longer than others; of plans that change no variable.
        A plan that was made for what is not there (`runtime_state_dict_to`, another machine) is compiled anew from its graph, with
        a warning.
        """
        runtime_state.load(self, state_dict, warmup_with_run)

    @staticmethod
    def runtime_state_dict_to(state_dict: Any, device: Any) -> dict[str, Any]:
        """A copy for another device: of the same kind ("sim:1" for "sim:0"), the plan itself; of another kind, the graph, which is not
        traced but compiled where it is loaded."""
        return runtime_state.moved(state_dict, device)

    def enable_save_runtime_state_dict(self, mode: bool = True) -> None:
        """OneFlow's switch, before the first call. False: runtime_state_dict() raises RuntimeError."""
        self.__dict__["_saves_runtime_state"] = bool(mode)

    @property
    def is_compiled(self) -> Any:
        return self._call is not None

    # Calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self._given(args, kwargs)
        return eager.run(self, given) if eager.is_eager() else self._prepared_call(given)(given)

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """Traces and compiles for inputs like these, without running a step.

        memory: the budget of the plan, in bytes or as "512MiB": it is made to fit, by fewer slots of its registers and by computing again
        what the backward pass reads, or refused with the smallest budget that works. A build() that has an argument of this name is
        given it.
        """
        if "memory" in kwargs and "memory" not in inspect.signature(self.build).parameters:
            self.config.set_memory_budget(kwargs.pop("memory"))
            self.config.enable_auto_memory("Adaptive")
        given = self._given(args, kwargs)
        if self._call is None:
            self._compile_once(given)
        self._call.prepare(given)
        return self

    def run_steps(self, steps: int, *args: Any, **kwargs: Any) -> Any:
        """The results of the last of so many steps, each on the same arguments: of a graph that reads its own input, an epoch in one call.

        As many steps are in work as the plan has room for. Meanwhile this thread waits, and takes no core from them.
        """
        if not isinstance(steps, Integral) or steps < 1:
            raise _C.ValueError(f"graph '{self.name}': run_steps: {steps!r} steps; must be an int of at least 1")
        for _ in range(steps):
            results = self(*args, **kwargs)
        return results

    def try_call(self, *args: Any, **kwargs: Any) -> Any:
        """As a call, but None (and nothing submitted) while as many steps are in flight as the plan has room for."""
        given = self._given(args, kwargs)
        return eager.run(self, given) if eager.is_eager() else self._prepared_call(given).try_call(given)

    def _prepared_call(self, given: Given) -> Any:
        if self._call is None:
            self._compile_once(given)
        call, change = self._call, self._watch.changed(self) or self._updates.refresh()
        if change is None:
            return call
        self._count_change(change)
        check_can_compile_again(self.name, call.functions(), change)
        self.__dict__["_call"] = None
        try:
            call.synchronize()
        finally:
            for session in call.sessions():
                session.close()
        return self._prepared_call(given)

    def _count_change(self, change: str) -> None:
        self.__dict__["_changes"] += 1
        if self._changes == self._MANY_CHANGES:
            warnings.warn(f"graph '{self.name}': compiled for the {self._changes + 1}th time, because of a change of "
                          f"{change}. Each time takes as long as the first call. Make what changes often an argument of "
                          "the call, or a buffer that is written in place", RuntimeWarning, stacklevel=4)

    async def run_async(self, *args: Any, **kwargs: Any) -> Any:
        """As a call, for asyncio: gives the results once they are there, or raises the step's error.

        Steps are submitted in the order in which their coroutines first run, while the event loop does other things:
        leave the arguments alone meanwhile. The first call compiles the graph before it returns to the loop.
        """
        if eager.is_eager():
            return self(*args, **kwargs)
        if self._awaiting is None:
            self.__dict__["_awaiting"] = Awaiting(self.name)
        return await self._awaiting.run(self, args, kwargs)

    def synchronize(self) -> None:
        """Waits until every submitted step is done; raises the first error that no result has shown."""
        if self._call is not None or not eager.is_eager():
            self._compiled_call("synchronize").synchronize()

    def reset(self) -> None:
        """Begins anew after sluice.EndOfData, or at any time: waits for the calls made so far, and counts steps from 0 again.

        Host functions with a method reset(), and generator functions, begin anew, too; parameters and buffers stay as they are.
        """
        self._compiled_call("reset").reset()

    def close(self) -> None:
        """Ends the plan's actors now, instead of when the graph is deleted."""
        for session in self._call.sessions() if self._call is not None else ():
            session.close()

    def _compiled_call(self, what: Any) -> Any:
        if self._call is None:
            raise RuntimeError(f"{what}: graph '{self.name}' is not compiled; call it once, or compile(*inputs)")
        return self._call

    def _given(self, args: Any, kwargs: Any) -> Given:
        """The arguments of a call, as build() takes them."""
        if any(value.__class__ is not Tensor for value in (*args, *kwargs.values())):
            args, kwargs = with_tensors(self._blocks.values(), args, kwargs)
        if self.__dict__.get("_signature") is None:
            self.__dict__["_signature"] = inspect.signature(self.build)
        self.__dict__["_positional"] = len(args)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            names = list(self._signature.parameters)
            raise _C.TypeError(f"graph '{self.name}': {error}; build takes {names}, got {len(args)} positional arguments and "
                               f"{list(kwargs)}") from None
        bound.apply_defaults()
        return taken_apart(bound.arguments)

    def _bound(self, arguments: Any) -> inspect.BoundArguments:
        """Arguments by name, as build() takes them: by position those that the call has given so, since decorators of functions may
        take notice of that."""
        kinds = inspect.Parameter
        parameters = list(self._signature.parameters.values())
        if not any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
            parameters = [p if i < self._positional or p.kind is not kinds.POSITIONAL_OR_KEYWORD else p.replace(kind=kinds.KEYWORD_ONLY)
                          for i, p in enumerate(parameters)]
        return inspect.BoundArguments(inspect.Signature(parameters), OrderedDict(arguments))

    # Compilation

    def _compile_once(self, given: Any, missing: Any = None, compile: Any = None) -> None:
        """If threads call first at the same time, one compiles and the others wait for it.

        missing: says whether there is something to compile still; by default, the graph as a whole.
        """
        missing, compile = missing or (lambda: self._call is None), compile or (lambda tracing: self._compile(given, tracing))
        while missing():
            here = threading.get_ident()
            with contextlib.ExitStack() as tracing:
                tracing.enter_context(tracing_lock)
                thread, done = self._compiling or (None, threading.Event())
                if thread is None and missing():  # in this order: one is set before the other is cleared
                    self.__dict__["_compiling"] = here, done
                    try:
                        compile(tracing)
                    finally:
                        self.__dict__["_compiling"] = None
                        done.set()
            if thread == here:
                raise _C.RuntimeError(f"graph '{self.name}': its build() calls the graph itself, which would never end; call "
                                      "its modules instead")
            # A thread that traces another graph waits with the lock held: the thread it waits for has traced, and needs it
            # no more.
            if thread is not None:
                done.wait()

    def _prepare_updates(self) -> None:
        """Makes the state of optimizers, as it will lie."""
        wishes = [zero for block in self._blocks.values() if (zero := ModuleConfig.of(block).zero) is not None]
        if self.config.zero is None and wishes:
            if any(zero != wishes[0] for zero in wishes):
                raise _C.ValueError(f"graph '{self.name}': its modules were given different zero by parallelize(); give all the same, or call "
                                    "config.enable_zero()")
            self.config._set("zero", wishes[0])
        self._updates.prepare(self.config.zero)

    def _compile(self, given: Given, tracing: Any) -> None:
        self.__dict__["_watch"] = Watch()
        self._prepare_updates()
        if self.config.dims and self._several_shapes:
            raise _C.ValueError(f"graph '{self.name}': both config.set_dims and with_dynamic_input_shape are used; use one of "
                                "them")
        if self.config.zero is not None and (self.config.dims or self._several_shapes):
            raise _C.NotImplementedError(f"graph '{self.name}': enable_zero works with one plan only; leave out set_dims and "
                                         "with_dynamic_input_shape")
        if self._several_shapes:
            call = ShapeCache(self, *self._several_shapes)
            call.add(given, tracing)
        elif self.config.dims:
            call = compile_family(self, given, tracing)
        else:
            trace = traced(self, given)
            tracing.close()  # other graphs may be traced while this one is compiled
            one_plan = self.config.zero is not None or any(leaf._global for leaf in given.leaves)
            if trace.captured.ordered and not one_plan:
                call = LayoutCache(self)
                call.keep(trace)
            else:
                call = compiled(self, trace)
        self.__dict__["_call"] = call  # all at once: other threads may look

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the watch notes what build() reads."""
        return self._watch.reading(self, Graph, self._own, self._named_modules(), self._environment)

    def _named_modules(self) -> Any:
        for block, module in self._blocks.items():
            yield from module.named_modules(prefix=block)

    def _module_names(self) -> Any:
        names = {}
        for name, module in self._named_modules():
            names.setdefault(id(module), name)
        return names

    def _variables(self) -> Any:
        """(name, tensor) of all state: parameters, buffers, optimizer state, learning rates, schedule counters."""
        for block, module in self._blocks.items():
            for name, tensor in dense_parts(itertools.chain(module.named_parameters(), module.named_buffers())):
                yield f"{block}.{name}", tensor
        yield from self._updates.variables(self._blocks)

    # Reports

    def debug(self, v_level: int = 0, *, ranks: Any = None, max_py_stack_depth: int = 2) -> None:
        """Prints to stderr while compiling: 0 stages and memory, 1 modules, 2 ops, 3 attributes, stacks and passes.

        ranks: the rank or ranks that print; 0 when None, all when -1. A module's own debug() goes before this.
        """
        self.__dict__["_debug"] = Debug(v_level, max_py_stack_depth, ranks)

    def __repr__(self) -> str:
        return graph_repr(self)

    def _repr_html_(self) -> str:
        """In a notebook: the graph as text and, once it is compiled, a picture of its plan, with a lane for each stream."""
        text = f"<pre>{html.escape(repr(self))}</pre>"
        if not self.is_compiled:
            return text
        return f"<details><summary>{html.escape(self.name)}</summary>{text}</details>{self._drawn('svg')}"
