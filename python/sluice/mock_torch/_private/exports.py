"""torch.export over sluice.export: a program with dims becomes a bundle."""

from __future__ import annotations

import inspect
from typing import Any, Iterator, NoReturn

from sluice import _C
from sluice._base.dim import Dim as OwnDim
from sluice._C import Tensor
from sluice._graph.bundle import LoadedGraph, load_graph, save_graph
from sluice._graph.export import AskedDim, Exported, export as own_export
from sluice.mock_torch._private.refused import refused_module


_most = max


class Dim:
    """A named size of a program's inputs; torch.export.Dim. One without `max` goes to the example's size."""

    AUTO = DYNAMIC = "as long as the example"
    STATIC = None

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:  # noqa: A002
        self.__name__, self.min, self.max = name, _most(min or 1, 1), max
        if max is not None:
            OwnDim(name, max=max, min=self.min)  # which checks them

    def asked(self) -> AskedDim:
        return AskedDim(self.__name__, self.min, self.max)

    def _derived(self, other: Any) -> NoReturn:
        raise NotImplementedError(f"torch.export.Dim: a size that is computed of '{self.__name__}'; must be a dim of its own")

    __mul__ = __rmul__ = __add__ = __radd__ = __sub__ = __floordiv__ = _derived


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:  # noqa: A002
    """Several Dims; torch.export.dims."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ExportedProgram:
    """A program that export() has made or load() has read; torch.export.ExportedProgram."""

    def __init__(self, program: Any, example: Any = None) -> None:
        if not isinstance(program, (Exported, LoadedGraph)):
            raise _C.TypeError(f"ExportedProgram: got {type(program).__name__}; must be made by torch.export.export or load")
        self._program, self.example_inputs = program, example

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def module(self, check_guards: bool = True) -> Any:
        """A callable like the module that was exported."""
        return self._program

    @property
    def state_dict(self) -> Any:
        if isinstance(self._program, LoadedGraph):
            raise NotImplementedError("ExportedProgram.state_dict: a program that was loaded; its variables are in weights.safetensors of "
                                      "the bundle: sluice.utils.safetensors.load_file")
        return self._program.state_dict()

    @property
    def graph_module(self) -> NoReturn:
        raise NotImplementedError("ExportedProgram.graph_module: a plan is no fx graph; use torch.fx.symbolic_trace(module), or "
                                  "sluice.lower(module, *args).text()")

    graph = graph_signature = range_constraints = graph_module

    def run_decompositions(self, decomp_table: Any = None) -> ExportedProgram:
        """The program as it is: its ops are Sluice's."""
        return self


def _of_axes(name: str, value: Tensor, spec: Any) -> dict[int, Any]:
    """The dims of a tensor's axes; "" as name: one of its own for the axis."""
    axes = spec.items() if isinstance(spec, dict) else enumerate(spec)
    found: dict[int, Any] = {}
    for axis, dim in axes:
        if isinstance(dim, Dim):
            found[axis] = dim.asked()
        elif dim == Dim.AUTO:
            found[axis] = AskedDim(f"{name}_{axis}".replace(".", "_"))
        elif dim is not None and not (isinstance(dim, int) and dim == value._shape[axis]):
            raise _C.TypeError(f"torch.export.export: dynamic_shapes of '{name}': {dim!r:.80}; must be a torch.export.Dim, Dim.AUTO or None")
    return found


def _walk(name: str, value: Any, spec: Any) -> Iterator[tuple[str, dict[int, Any]]]:
    """(name of a tensor, its dims) of an argument and the part of dynamic_shapes that is about it."""
    if spec is None:
        return
    if isinstance(value, Tensor):
        if found := _of_axes(name, value, spec):
            yield name, found
    elif isinstance(value, dict) and isinstance(spec, dict):
        for key in spec:
            yield from _walk(f"{name}.{key}", value[key], spec[key])
    elif isinstance(value, (list, tuple)) and isinstance(spec, (list, tuple)) and len(value) == len(spec):
        for i, (one, of_one) in enumerate(zip(value, spec)):
            yield from _walk(f"{name}.{i}", one, of_one)
    else:
        raise _C.TypeError(f"torch.export.export: dynamic_shapes of '{name}': {spec!r:.80} for {type(value).__name__}; must be nested as it is")


def export(mod: Any, args: Any, kwargs: Any = None, *, dynamic_shapes: Any = None, strict: bool = False,
           preserve_module_call_signature: Any = (), prefer_deferred_runtime_asserts_over_guards: bool = False) -> ExportedProgram:
    """sluice.export with torch's form of dims; torch.export.export."""
    bound = inspect.signature(mod.forward if hasattr(mod, "forward") else mod).bind(*args, **(kwargs or {}))
    specs = dynamic_shapes or {}
    if not isinstance(specs, dict):
        specs = dict(zip(bound.arguments, specs))
    if unknown := [name for name in specs if name not in bound.arguments]:
        raise _C.ValueError(f"torch.export.export: dynamic_shapes: '{unknown[0]}'; the arguments are {list(bound.arguments)}")
    dynamic = {name: axes for argument, spec in specs.items() for name, axes in _walk(argument, bound.arguments[argument], spec)}
    return ExportedProgram(own_export(mod, tuple(args), kwargs, dynamic=dynamic), (tuple(args), dict(kwargs or {})))


def save(ep: ExportedProgram, f: Any, **options: Any) -> None:
    """Writes the program as a bundle, a folder; torch.export.save."""
    if hasattr(f, "write"):
        raise _C.TypeError("torch.export.save: f: a file that is open; must be the path of a folder, which a bundle is")
    program = ep._program
    save_graph(program._graph if isinstance(program, Exported) else program, f)


def load(f: Any, **options: Any) -> ExportedProgram:
    """The program of a bundle; torch.export.load."""
    return ExportedProgram(load_graph(f))


MODULES: dict[str, Any] = {"torch.export": refused_module("torch.export", Dim=Dim, ExportedProgram=ExportedProgram, dims=dims, export=export,
                                                         load=load, save=save)}
