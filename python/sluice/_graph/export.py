"""export(): a whole program ahead of time, for the sizes that its dims may have."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

from sluice import _C
from sluice._base.dim import Dim
from sluice._base.grad_mode import no_grad
from sluice._base.structure import flatten
from sluice._C import Tensor, fn
from sluice._graph.bundle import save_graph
from sluice._graph.function import FunctionGraph
from sluice._graph.given import Given
from sluice._tensor.creation import get_rng_state, rand, set_rng_state

_FAR = 1e-3  # of the largest value of a result: more is no matter of rounding


class AskedDim(NamedTuple):
    """A dim of which a name is known, and perhaps limits; export() finds out the rest."""

    name: str
    min: int = 1
    max: Optional[int] = None


class Exported:
    """A program with all of its plans; `export` makes it. Call it like the module, or save() it."""

    def __init__(self, graph: FunctionGraph, dims: list[Dim]) -> None:
        self._graph = graph
        self._dims = {dim.name: dim for dim in dims}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._graph(*args, **kwargs)

    @property
    def dims(self) -> dict[str, Dim]:
        """The dims by name: from which size to which they go, and what becomes of sizes without a plan of their own (`fit`)."""
        return dict(self._dims)

    @property
    def inputs(self) -> Any:
        """(name, dtype, shape) of each tensor that it takes, at the largest sizes."""
        return self._graph.inputs

    @property
    def outputs(self) -> Any:
        return self._graph.outputs

    def state_dict(self) -> Any:
        """The variables by name, which the exported program shares with the module."""
        return dict(self._graph._variables())

    def save(self, path: Any) -> None:
        """Writes a bundle: `sluice.load_graph` reads it, and C++, C, `sluice-run` and `sluice-serve`, without Python."""
        save_graph(self._graph, path)

    def __repr__(self) -> str:
        return f"Exported({self._graph.name!r}, dims={list(self._dims.values())})"


def export(module: Callable[..., Any], args: Any = (), kwargs: Any = None, *, dynamic: Any = None, name: str | None = None) -> Exported:
    """The whole program of a module or function, ahead of time; torch.export.export.

        program = sluice.export(net, (x,), dynamic={"x": {0: "B"}})
        program.save("net")                                 # for C++: engine.load("net")

    args, kwargs: an example of a call. dynamic: by argument, as `GraphConfig.set_dims` names them ("x", "others.0"), and axis, a
        `sluice.Dim`, or a name: a dim from 1 to the example's size, the same in all places that have the name.
    A named dim has plans for powers of two, filled up with zeros, where calls of a size between two of them give the module's own
    results; else a plan for each of its sizes. Raises what tracing raises where Python needs a value that only a call has.
    """
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, (dict, type(None))):
        raise _C.TypeError(f"export: args: {type(args).__name__} and {type(kwargs).__name__}; must be a tuple of arguments and a dict of "
                           "those by name")
    asked = _asked(dynamic)
    given = FunctionGraph(module, name=name)._given(args, kwargs or {})
    first = _dims(asked, given, "pad")
    padded = [dim for axes in asked.values() for dim in axes.values() if isinstance(dim, AskedDim)]
    with no_grad():
        try:
            program = _compiled(module, name, first, args, kwargs)
            if not padded or _agrees(module, program, first, given):
                return program
        except _C.ValueError as error:
            if not padded or 'fit="exact"' not in str(error):
                raise
        return _compiled(module, name, _dims(asked, given, "exact"), args, kwargs)


def _asked(dynamic: Any) -> dict[str, dict[int, Any]]:
    """The dims by argument and axis; names as what they stand for."""
    found: dict[str, dict[int, Any]] = {}
    if not isinstance(dynamic, (dict, type(None))):
        raise _C.TypeError(f"export: dynamic: {type(dynamic).__name__}; must be a dict of dims by axis, by argument")
    for argument, axes in (dynamic or {}).items():
        if not isinstance(axes, dict):
            raise _C.TypeError(f"export: dynamic['{argument}']: {type(axes).__name__}; must be a dict of dims by axis: {{0: 'B'}}")
        for axis, dim in axes.items():
            if isinstance(axis, bool) or not isinstance(axis, int) or not isinstance(dim, (str, Dim, AskedDim)):
                raise _C.TypeError(f"export: dynamic['{argument}']: {axis!r}: {dim!r:.80}; must be a name or a sluice.Dim by the number of "
                                   "an axis")
            found.setdefault(argument, {})[axis] = AskedDim(dim) if isinstance(dim, str) else dim
    return found


def _dims(asked: dict[str, dict[int, Any]], given: Given, fit: str) -> dict[str, dict[int, Dim]]:
    """The same with dims in place of names, of which each stands for one size of the example."""
    shapes = {name: leaf._shape for name, leaf in zip(given.names, given.leaves)}
    sizes: dict[str, tuple[int, str]] = {}
    made: dict[str, Dim] = {}

    def one(argument: str, axis: int, dim: Any) -> Dim:
        shape = shapes.get(argument, ())
        if isinstance(dim, Dim) or not -len(shape) <= axis < len(shape):
            return dim if isinstance(dim, Dim) else Dim(dim.name, 1)  # set_dims() says what is wrong
        size, where = shape[axis], f"axis {axis} of '{argument}'"
        before, there = sizes.setdefault(dim.name, (size, where))
        if before != size:
            raise _C.ValueError(f"export: dim '{dim.name}': {size} at {where}, {before} at {there}; must be one size of the example")
        if dim.name not in made:
            most = size if dim.max is None else dim.max
            if most <= dim.min and dim.max is None:
                raise _C.ValueError(f"export: dim '{dim.name}': the example has {size} at {where}; must be the largest size that there is to "
                                    f"be, or give sluice.Dim('{dim.name}', max=...)")
            made[dim.name] = Dim(dim.name, max=most, min=dim.min, fit=fit)
        return made[dim.name]

    return {argument: {axis: one(argument, axis, dim) for axis, dim in axes.items()} for argument, axes in asked.items()}


def _compiled(module: Any, name: str | None, dims: dict[str, dict[int, Dim]], args: Any, kwargs: Any) -> Exported:
    graph = FunctionGraph(module, name=name)
    if dims:
        graph.config.set_dims(dims)
    graph.compile(*args, **(kwargs or {}))
    return Exported(graph, list({id(dim): dim for axes in dims.values() for dim in axes.values()}.values()))


def _agrees(module: Any, program: Exported, dims: dict[str, dict[int, Dim]], given: Given) -> bool:
    """Whether calls of sizes that are filled up give what the module itself gives: rows must not depend on each other."""
    between = {dim.name: max((n for n in range(dim.min, dim.max) if n not in dim.buckets), default=0) for dim in program.dims.values()}
    between = {name: size for name, size in between.items() if size}
    state = get_rng_state()
    try:
        leaves = [_example(leaf, {axis: between[dim.name] for axis, dim in dims.get(name, {}).items() if dim.name in between})
                  for name, leaf in zip(given.names, given.leaves)]
        arguments = program._graph._bound(given.structure.build(iter(leaves)))
        same = _same(program(*arguments.args, **arguments.kwargs), module(*arguments.args, **arguments.kwargs)) if between else True
    finally:
        set_rng_state(state)
    return same


def _example(leaf: Any, sizes: dict[int, int]) -> Any:
    """A tensor like an example's, with these sizes and other values, so that rows differ."""
    for axis, size in sizes.items():
        leaf = fn.concat([leaf] * -(-size // leaf._shape[axis]), axis).narrow(axis, 0, size)
    if not leaf.is_floating_point():
        return leaf
    other = rand(*leaf._shape, dtype=leaf.dtype, device=leaf.device)
    return leaf * (other * 0.5 + 0.75) if bool(leaf.any()) else other


def _same(got: Any, expected: Any) -> bool:
    ours: list[Tensor] = []
    theirs: list[Tensor] = []
    flatten(got, "", ours, [])
    flatten(expected, "", theirs, [])
    for a, b in zip(ours, theirs):
        if a._shape != b._shape:
            return False
        if not a.is_floating_point():
            if not bool((a == b).all()):
                return False
        elif a.numel():
            far = _FAR * max(float(b.abs().nan_to_num().max()), 1e-30)
            if not bool(fn.isclose(a, b, rtol=0, atol=far, equal_nan=True).all()):
                return False
    return True
