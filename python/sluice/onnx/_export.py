"""Programs as models of ONNX. The entries of ops are C++ (onnx/export); here a program is traced at the sizes that they need."""

from __future__ import annotations

import os
from typing import Any, Callable

from sluice import _C, nn
from sluice._base.grad_mode import no_grad
from sluice._base.structure import flatten
from sluice._graph.bundle import LoadedGraph
from sluice._graph.lower import lower
from sluice._tensor.creation import zeros

MOST_INSIDE = 1 << 30  # bytes of weights from which on they lie beside the model


def _axes(dynamic: dict[str, Any], names: list[str]) -> dict[str, dict[int, str]]:
    """Names of dims by input and axis."""
    unknown = dynamic.keys() - set(names)
    if unknown:
        raise ValueError(f"onnx.export: dynamic names {sorted(unknown)}; the inputs are {names}")
    axes: dict[str, dict[int, str]] = {}
    for name, of in dynamic.items():
        given = of.items() if isinstance(of, dict) else enumerate(of)
        axes[name] = {int(axis): dim if isinstance(dim, str) else dim.name for axis, dim in given if dim is not None}
    return axes


def _resized(nest: Any, name: str, axes: dict[str, dict[int, str]], size: dict[str, int]) -> Any:
    """The arguments with the sizes of this trace; where none varies, the tensors themselves."""
    if isinstance(nest, dict):
        return {k: _resized(v, f"{name}.{k}" if name else str(k), axes, size) for k, v in nest.items()}
    if isinstance(nest, (list, tuple)):
        parts = [_resized(v, f"{name}.{i}", axes, size) for i, v in enumerate(nest)]
        return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)
    if name not in axes:
        return nest
    shape = list(nest.shape)
    for axis, dim in axes[name].items():
        if not -len(shape) <= axis < len(shape):
            raise IndexError(f"onnx.export: axis {axis} of input '{name}' {tuple(shape)}; must be one of its axes")
        shape[axis] = size[dim]
    return zeros(*shape, dtype=nest.dtype, device=nest.device)


def export(model: Callable[..., Any], args: Any, path: str | os.PathLike[str], *, opset: int | None = None,
           dynamic: dict[str, Any] | None = None, external_data: bool | None = None) -> int:
    """Writes a Module, a Graph, a function, or a graph of load_graph() or sluice.quantization, to `path` as a model of ONNX; returns its
    opset.

        sl.onnx.export(net.eval(), x, "net.onnx", dynamic={"x": {0: "batch"}})

    args: a tensor or a tuple of arguments, as the model takes them; None for a graph that is loaded or quantized. Inputs have the names
    of its parameters ("x", "batch.images").
    opset: 17 or newer; by default the lowest that the ops need. dynamic: for inputs, names of the axes whose sizes vary; axes of one name
    have one size. The model is traced at several of these. external_data: whether weights lie in path + ".data"; by default where they
    are larger than 1 GB.

    Raises NotImplementedError, with module and line, for ops that ONNX has not, for steps that train or draw random numbers (call eval()
    first), and for sizes that do not follow from the dims by sums and products.
    """
    if not hasattr(_C, "onnx_export"):
        raise _C.NotImplementedError("onnx: this build of Sluice writes no models of ONNX; build it where protobuf is "
                                     "(libprotobuf-dev, protobuf-compiler), with -DSLUICE_ONNX=ON")
    if isinstance(model, LoadedGraph):
        return _export_loaded(model, path, opset, dynamic, bool(external_data))
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    with no_grad():
        first = lower(model, *args)
        names = first._trace.given.names
        axes = _axes(dynamic or {}, names)
        dims = sorted({dim for of in axes.values() for dim in of.values()})
        sizes = _C.onnx_sizes_to_trace(len(dims)) if dims else []
        traces = [first._trace.captured]
        if dims:
            parameters = _parameter_names(first, args)
            traces = []
            for size in sizes:
                of = dict(zip(dims, size))
                traces.append(lower(model, *(_resized(a, n, axes, of) for n, a in zip(parameters, args)))._trace.captured)
    if external_data is None:
        external_data = sum(p.numel() * p.element_size() for p in getattr(model, "parameters", list)()) > MOST_INSIDE
    prefix = "function." if isinstance(model, nn.Module) else ""  # the name that a module has in the graph of it
    return _C.onnx_export(traces, os.fspath(path), opset or 0, dims, sizes, axes, external_data, prefix)


def _export_loaded(model: LoadedGraph, path: Any, opset: int | None, dynamic: Any, external_data: bool) -> int:
    """A graph whose program is not there any more, only what was captured."""
    if dynamic:
        raise _C.NotImplementedError(f"onnx.export: dynamic names {sorted(dynamic)}; '{model.name}' is a graph of fixed sizes, whose program is "
                                     "not there to be traced at others: export the module, or leave out dynamic")
    sessions = model._call.sessions()
    if len(sessions) != 1:
        raise _C.NotImplementedError(f"onnx.export: '{model.name}' has {len(sessions)} plans; export graphs of one plan, each by itself")
    return _C.onnx_export([sessions[0].captured()], os.fspath(path), opset or 0, [], [], {}, external_data, "function.")


def _parameter_names(lowered: Any, args: tuple[Any, ...]) -> list[str]:
    """The names that the program has for these positional arguments."""
    names = lowered._trace.given.names
    found, at = [], 0
    for arg in args:
        leaves: list[Any] = []
        paths: list[str] = []
        flatten(arg, "", leaves, paths)
        if not leaves:
            found.append("")
            continue
        path, name = paths[0], names[at]
        found.append(name[:-len(path) - 1] if path else name)
        at += len(leaves)
    return found
