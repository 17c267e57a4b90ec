"""Custom ops: one callable for eager calls, which run a kernel, and for graphs, where the kernel is a host function."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Optional

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import from_numpy
from sluice._tensor.host_function import host_function
from sluice._base.trace import within
from sluice.autograd.function import Function
from sluice._base.grad_mode import no_grad
from sluice.library._schema import Schema

_AS_NUMPY = {_C.bfloat16: _C.float32}  # dtypes that NumPy lacks, and those that hold them exactly


_TENSOR = object()  # where one stands in the arguments of a call


def _place(value: Any) -> Any:
    return _TENSOR if isinstance(value, Tensor) else value


class Operands:
    """The arguments of a call, apart from their tensors, which stand in a list."""

    def __init__(self, schema: Schema, values: list[Any]) -> None:
        self.schema = schema
        self.tensors: list[Tensor] = []
        self.mutated: list[int] = []  # of `tensors`
        self._values: list[Any] = []  # with _TENSOR in their places
        for argument, value in zip(schema.arguments, values):
            if argument.is_tensors:
                found = [t for t in (value if isinstance(value, list) else [value]) if t is not None]
                if argument.mutated:
                    self.mutated += range(len(self.tensors), len(self.tensors) + len(found))
                self.tensors += found
                value = [_place(v) for v in value] if isinstance(value, list) else _place(value)
            self._values.append(value)

    def without_tensors(self) -> Operands:
        """For what outlives the call: a graph's host function must not keep the tensors of its trace."""
        made = Operands(self.schema, [])
        made._values, made.mutated = self._values, self.mutated
        return made

    def nest(self, flat: Any) -> list[Any]:
        """The arguments with `flat` in place of the tensors; what is no tensor stays as it is."""
        return self._nest(iter(flat), lambda value: value)

    def nest_alone(self, flat: Any, other: Any) -> list[Any]:
        """The same with `other` in place of whatever is no tensor."""
        return self._nest(iter(flat), lambda value: other)

    def _nest(self, flat: Any, otherwise: Callable[[Any], Any]) -> list[Any]:
        def one(value: Any) -> Any:
            return next(flat) if value is _TENSOR else otherwise(value)

        return [[one(v) for v in value] if isinstance(value, list) and argument.is_tensors else one(value)
                for argument, value in zip(self.schema.arguments, self._values)]

    def call(self, function: Callable[..., Any], flat: Any) -> Any:
        values = list(zip(self.schema.arguments, self.nest(flat)))
        return function(*(v for a, v in values if not a.kw_only), **{a.name: v for a, v in values if a.kw_only})


class Results:
    """The results of a function of a schema: its tensors as a list, and how they are nested."""

    def __init__(self, op: CustomOpDef, value: Any) -> None:
        returns = op._schema.returns
        self._single = len(returns) == 1 and not op._schema.returns_tuple
        if not returns and value is not None:
            raise _C.RuntimeError(f"{op}: returned {type(value).__name__}; its schema {op._schema} has no results")
        parts = [value] if self._single else [] if value is None else value
        if not isinstance(parts, (tuple, list)) or len(parts) != len(returns):
            got = len(parts) if isinstance(parts, (tuple, list)) else type(parts).__name__
            raise _C.RuntimeError(f"{op}: returned {got} values; its schema {op._schema} has {len(returns)}")
        self.tensors: list[Tensor] = []
        self._parts: list[Any] = []  # of each result: how many tensors in a list, None for a tensor, or what is none
        for kind, part in zip(returns, parts):
            several = kind == "Tensor[]" and isinstance(part, (tuple, list))
            for t in part if several else [part] if kind.startswith("Tensor") else []:
                if not isinstance(t, Tensor):
                    raise _C.RuntimeError(f"{op}: Unable to cast {t!r:.100} to Tensor; its schema is {op._schema}")
                self.tensors.append(t)
            self._parts.append((kind, len(part) if several else part))
        self.kinds = [kind for kind, _ in self._parts]

    def nest(self, flat: Any) -> Any:
        flat, built = iter(flat), []
        for kind, part in self._parts:
            built.append(next(flat) if kind == "Tensor" else [next(flat) for _ in range(part)] if kind == "Tensor[]" else part)
        return None if not built else built[0] if self._single else tuple(built)


class CustomOpDef:
    """An op of Python functions: call it, and register more with it. `sluice.library.custom_op` makes one."""

    def __init__(self, namespace: str, name: str, schema: Schema, function: Optional[Callable[..., Any]]) -> None:
        self._namespace, self._name, self._qualname = namespace, name, f"{namespace}::{name}"
        self._schema, self._init_fn = schema, function
        self._kernels: dict[Optional[str], Callable[..., Any]] = {}  # by kind of device; None: any
        self._disabled: set[str] = set()
        self._fake: Optional[Callable[..., Any]] = None
        self._composite: Optional[Callable[..., Any]] = None  # calls other ops instead
        self._backward: Optional[Callable[..., Any]] = None
        self._setup_context: Optional[Callable[..., Any]] = None
        self._autocast: dict[str, Any] = {}
        self._node = type(f"{namespace}_{name}", (_Recorded,), {"op": self})
        self.__name__, self.__doc__ = name, getattr(function, "__doc__", None)

    @property
    def default(self) -> CustomOpDef:
        """Itself: torch's spelling of an op without overloads."""
        return self

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    # Registrations

    def register_kernel(self, device_types: Any, fn: Any = None, /) -> Any:
        """`fn` computes on tensors of these kinds of devices ("cpu", ["cpu", "sim"]; None: of all)."""
        def register(function: Any) -> Any:
            for kind in [device_types] if device_types is None or isinstance(device_types, str) else device_types:
                self._kernels[kind] = function
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: Any, /) -> Any:
        """`fn` gets the arguments and returns tensors of the results' shapes and dtypes; their contents do not count."""
        self._fake = fn
        return fn

    def register_autograd(self, backward: Any, /, *, setup_context: Any = None) -> None:
        """The gradient: `backward(ctx, *grads)` returns one, or None, for each argument.

        `setup_context(ctx, inputs, output)` keeps what backward needs; with `keyword_only_inputs`, too, where the op has such.
        """
        if self._schema.mutates:
            raise _C.RuntimeError(f"Cannot register autograd formula for non-functional operator {self} with schema "
                               f"{self._qualname}{self._schema}. Please create a functional operator and register an autograd "
                               f"formula "
                               "for that.")
        self._backward, self._setup_context = backward, setup_context

    def register_vmap(self, func: Any = None) -> Any:
        """Accepted and not called: sluice.func.vmap calls ops row by row, which needs no rule."""
        return (lambda fn: fn) if func is None else func

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Inside sluice.autocast of this kind of device, floating arguments are cast to `cast_inputs` first."""
        if not isinstance(cast_inputs, _C.dtype) or not cast_inputs.is_floating_point:
            raise _C.ValueError(f"register_autocast: got {cast_inputs!r}; must be a floating dtype")
        self._autocast[device_type] = cast_inputs

    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Any:
        """Whether the kernel of this kind of device is used, or the one of all; a context manager puts it back."""
        import contextlib

        before = device_type in self._disabled
        (self._disabled.discard if enabled else self._disabled.add)(device_type)

        @contextlib.contextmanager
        def restored() -> Any:
            try:
                yield
            finally:
                (self._disabled.add if before else self._disabled.discard)(device_type)

        return restored()

    # Calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        operands = Operands(self._schema, self._schema.bind(self._qualname, args, kwargs))
        cast = self._autocast.get("cpu") if self._autocast and _autocast_is_on() else None
        if cast is not None:
            from sluice.amp import autocast

            cast_tensors = (t.to(cast) if t.dtype.is_floating_point else t for t in operands.tensors)
            operands = Operands(self._schema, operands.nest(cast_tensors))
            with autocast("cpu", enabled=False):
                return self._dispatch(operands)
        return self._dispatch(operands)

    def _dispatch(self, operands: Operands) -> Any:
        if self._composite is not None:
            return operands.call(self._composite, operands.tensors)
        tensors = operands.tensors
        if not (_C.is_grad_enabled() and any(t.requires_grad for t in tensors)):
            with no_grad():
                return self._run(operands, tensors).value
        if self._schema.mutates:
            if any(tensors[i].requires_grad for i in operands.mutated):
                raise _C.RuntimeError(f"{self._qualname}: a Variable that requires grad is being used in an in-place "
                                      f"operation, which this op "
                                   "has no gradient for; call it within no_grad(), or with detach()")
            with no_grad():
                return self._run(operands, tensors).value
        shared: list[Results] = []
        flat = self._node.apply(operands, shared, *tensors)
        return shared[0].nest(flat)

    def _run(self, operands: Operands, tensors: Any) -> Any:
        run = _in_graph if _C.is_tracing() else _eagerly
        return run(self, operands, [t.detach() for t in tensors] if run is _eagerly else tensors)

    def _kernel(self, tensors: Any) -> Callable[..., Any]:
        kind = next((t.device.type for t in tensors), "cpu")
        found = None if kind in self._disabled else self._kernels.get(kind)
        found = found or self._kernels.get(None)
        if found is None:
            kinds = ", ".join(sorted(str(k) for k in self._kernels)) or "none"
            raise _C.NotImplementedError(f"Could not run '{self._qualname}' with arguments from the '{kind.upper()}' backend: "
                                         f"it has no kernel "
                                      f"there; it has kernels for: {kinds}. Add one with register_kernel('{kind}')")
        return found


class _Value:
    """The results of a run, flat and as the caller gets them."""

    def __init__(self, results: Results, tensors: Any) -> None:
        self.results, self.tensors = results, tensors
        self.value = results.nest(tensors)


def _eagerly(op: CustomOpDef, operands: Operands, tensors: Any) -> _Value:
    results = Results(op, operands.call(op._kernel(tensors), tensors))
    check_aliases(op, results.tensors, tensors)
    return _Value(results, results.tensors)


def _in_graph(op: CustomOpDef, operands: Operands, tensors: Any) -> _Value:
    """The kernel as a host function, which gets the tensors' contents, and returns the results and what it has written."""
    fake = fake_results(op, operands, tensors)
    if any(not kind.startswith("Tensor") for kind in fake.kinds):
        raise _C.NotImplementedError(f"{op._qualname}: returns {', '.join(fake.kinds)}, which have no value while a graph is "
                                     f"built; return "
                                  "tensors, or call it outside of the graph")
    kernel, dtypes = op._kernels.get("cpu") or op._kernels.get(None), [t.dtype for t in tensors]
    if kernel is None:
        op._kernel([])  # says what there is
    mutated, alone = operands.mutated, operands.without_tensors()
    declared = [(tuple(t.shape), t.dtype) for t in [*(tensors[i] for i in mutated), *fake.tensors]]
    if not declared:
        raise _C.NotImplementedError(f"{op._qualname}: neither returns nor writes a tensor, so a graph would leave it out; "
                                     f"return a tensor, "
                                  "and a result of the graph made of it")

    def host(*arrays: Any) -> Any:
        with no_grad():
            given = [from_numpy(a).to(d) for a, d in zip(arrays, dtypes)]
            for i in mutated:
                given[i] = given[i].clone()  # an array of the graph is read-only
            results = Results(op, alone.call(kernel, given))
            check_aliases(op, results.tensors, given)
            made = [*(given[i] for i in mutated), *results.tensors]
            if len(made) != len(declared):
                raise _C.RuntimeError(f"{op._qualname}: the kernel returned {len(made)} tensors, its fake {len(declared)}; "
                                      f"they must be equal")
            for t, (shape, dtype) in zip(made, declared):
                if tuple(t.shape) != shape or t.dtype is not dtype:
                    raise _C.RuntimeError(f"{op._qualname}: the kernel returned {t.dtype} of shape {tuple(t.shape)}, its fake "
                                          f"{dtype} of shape "
                                       f"{shape}; they must be equal")
            return [t.to(_AS_NUMPY.get(t.dtype, t.dtype)).numpy() for t in made]

    host.__name__ = f"{op._namespace}.{op._name}"
    made = host_function(host, *(t.to(_AS_NUMPY.get(t.dtype, t.dtype)) for t in tensors),
                         out=[(shape, _AS_NUMPY.get(dtype, dtype)) for shape, dtype in declared])
    made = [t.to(dtype) for t, (_, dtype) in zip(made, declared)]
    for i, t in zip(mutated, made):
        tensors[i].detach().copy_(t)
    flat = made[len(mutated):]
    return _Value(fake, flat)


def fake_results(op: CustomOpDef, operands: Operands, tensors: Any) -> Results:
    """The results of the op's fake for tensors of these types, in a graph that is thrown away: nothing is computed."""
    if op._fake is None:
        raise _C.RuntimeError(f"There was no fake impl registered for {op}. A graph needs it, to know the results' shapes and "
                              f"dtypes. Please "
                           f"use `{op._name}.register_fake` to add a fake impl.")
    scope = _C.TraceScope(op._name, 1, [])
    try:
        # Contiguous, whatever they are: to ask for strides would make the graph depend on those of its inputs.
        with within(functions={}):
            given = [scope.add_input(f"x{i}", t.dtype, list(t.shape)) for i, t in enumerate(tensors)]
            return Results(op, operands.call(op._fake, given))
    finally:
        scope.close()


def check_aliases(op: CustomOpDef, outputs: Any, inputs: Any) -> None:
    """No result may lie where an argument or another result does."""
    spans = [_span(t) for t in inputs]
    for t in outputs:
        span = _span(t)
        if any(begin < span[1] and span[0] < end for begin, end in spans):
            raise _C.RuntimeError(f"{op._qualname}: The output of this custom operator (1) must not also be an input to this "
                                  f"custom operator "
                               "and (2) may not alias any inputs to this custom operator or other returns. Return a clone of "
                               "it, for "
                               "example x.clone()")
        spans.append(span)


def _span(t: Tensor) -> tuple[int, int]:
    if t.numel() == 0:
        return (0, 0)
    reach = [(n - 1) * s for n, s in zip(t.shape, t.stride())]
    first, size = t.data_ptr(), t.dtype.itemsize
    return (first + size * sum(r for r in reach if r < 0), first + size * (1 + sum(r for r in reach if r > 0)))


def _autocast_is_on() -> bool:
    from sluice.amp.autocast_mode import is_autocast_enabled

    return is_autocast_enabled()


class _Recorded(Function):
    """A call of an op whose arguments require gradients."""

    op: Any = None

    @classmethod
    def forward(cls, ctx: Any, operands: Operands, shared: list[Any], *tensors: Any) -> Any:  # type: ignore[override]
        op, made = cls.op, cls.op._run(operands, tensors)
        shared.append(made.results)
        if op._backward is not None and op._setup_context is not None:
            needs, ctx.needs_input_grad = ctx.needs_input_grad, _needs(operands, ctx.needs_input_grad)
            inputs = list(zip(op._schema.arguments, operands.nest(tensors)))
            keywords = {a.name: v for a, v in inputs if a.kw_only}
            extra = {"keyword_only_inputs": keywords} if op._schema.has_kw_only else {}
            op._setup_context(ctx=ctx, inputs=tuple(v for a, v in inputs if not a.kw_only), output=made.value, **extra)
            ctx.needs_input_grad = needs
        made.results.tensors = []  # of which the tape must not have its own
        ctx._operands, ctx._results = operands.without_tensors(), made.results
        ctx._needs = _needs(operands, ctx.needs_input_grad)
        return tuple(made.tensors)

    @classmethod
    def backward(cls, ctx: Any, *grads: Any) -> Any:  # type: ignore[override]
        op, operands = cls.op, ctx._operands
        if op._backward is None:
            raise _C.RuntimeError(f"Trying to backward through {op._namespace}.{op._name}.default but no autograd formula was "
                                  f"registered. "
                               "Please use register_autograd to add one.")
        ctx.needs_input_grad = ctx._needs
        given = ctx._results.nest(grads)
        found = op._backward(ctx, *(given if isinstance(given, tuple) else (given,)))
        found = list(found) if isinstance(found, tuple) else [found]
        arguments = [a for a in op._schema.arguments if not a.kw_only]
        # As in torch, None at the end stands for what is not there, and may be left out of arguments that are no tensors.
        while len(found) > len(arguments) and found[-1] is None:
            found.pop()
        while len(found) < len(arguments) and not arguments[len(found)].is_tensors:
            found.append(None)
        if len(found) != len(arguments):
            raise _C.RuntimeError(f"{op._qualname}: backward returned an incorrect number of gradients: {len(found)}; the op "
                                  f"has "
                               f"{len(arguments)} arguments {tuple(a.name for a in arguments)}, and None stands for those "
                               f"without")
        found += [None] * (len(op._schema.arguments) - len(found))
        flat: list[Any] = []
        for argument, place, grad in zip(op._schema.arguments, operands.nest_alone(itertools.count(), None), found):
            if isinstance(place, list):
                grads_of = [None] * len(place) if grad is None else grad
                if not isinstance(grads_of, (tuple, list)) or len(grads_of) != len(place):
                    raise _C.RuntimeError(f"{op._qualname}: backward returned {type(grad).__name__} for the list "
                                          f"'{argument.name}'; must be a "
                                       f"list of {len(place)} gradients")
                flat += [g for g, p in zip(grads_of, place) if p is not None]
            elif place is not None:
                flat.append(grad)
            elif grad is not None:
                raise _C.RuntimeError(f"{op._qualname}: backward returned a gradient for '{argument.name}', which is no "
                                      f"tensor; must be None")
        return (None, None, *flat)


def _needs(operands: Operands, flat: Any) -> tuple[Any, ...]:
    """Which arguments need gradients, nested as they are: False for whatever is no tensor."""
    return tuple(operands.nest_alone(flat[2:], False))
