"""quantize(): which layers, which scales, and the graph that follows."""

from __future__ import annotations

import fnmatch
import itertools
import os
from typing import Any, Iterable, NamedTuple

import numpy as np

from sluice import _C
from sluice._tensor import creation
from sluice._C import fn
from sluice._graph.bundle import LoadedGraph, load_graph
from sluice._tensor.creation import from_numpy
from sluice._base.progress import with_progress
from sluice._base.grad_mode import no_grad
from sluice._graph.call import GraphCall
from sluice._graph.graph import Graph
from sluice.nn.modules.module import Module
from sluice.nn.modules.quantization import MinMaxObserver, Quantization
from sluice.quantization._observers import observer

MODES, METHODS = ("static", "dynamic", "qdq"), ("min_max", "percentile")


class Layer(NamedTuple):
    """A convolution or product that was quantized. scale, zero_point: of its operand, (q - zero_point) * scale; None in mode
    "dynamic"."""

    name: str  # of its module; of its weight where there is none
    op: str
    weight: str
    scale: float | None
    zero_point: int | None


class QuantizedGraph(LoadedGraph):
    """A graph for inference, called as the one that it was made of. `layers` has a Layer for each that is quantized; `kept`
    names the convolutions and products that are as they were. sluice.save() writes it as a bundle."""

    def __init__(self, name: str, session: Any, functions: Any, mode: str, layers: list[Layer], kept: list[str]) -> None:
        self._serve(name, None, [session], session.meta(), functions)
        self.mode, self.layers, self.kept = mode, layers, kept

    def __repr__(self) -> str:
        lines = "".join(f"\n    {layer.name}: {layer.op}" for layer in self.layers)
        return f"QuantizedGraph({self.name!r}, mode={self.mode!r},\n  layers:{lines}\n  kept: {self.kept}\n)"


def quantize(model: Any, calibration: Iterable[Any] | None = None, *, mode: str = "static", method: str = "min_max",
             percentile: float = 99.99, per_channel: bool = True, exclude: Iterable[str] = (), keep_first: bool = False,
             keep_last: bool = False, progress: bool | None = None) -> QuantizedGraph:
    """A graph that computes what `model` does with 8-bit integers in its convolutions and products by weights. The rest stays.

    model: a module in eval mode, an nn.Graph, a graph of load_graph(), or the path of a bundle. It is left as it is.
    calibration: batches of arguments as the model is called with: a tensor or array, a tuple of several, or a dict by name.
        All have the shapes of the first one, or of the graph.
    mode: "static": fixed scales, and the bundle has kernels of integers; "qdq": the same scales, and the bundle keeps pairs of
        quantize and dequantize, of which the compiler makes the same kernels; "dynamic": the scales of operands are computed in
        each call, and of the calibration only the first batch is looked at, for its shapes.
    method: how calibration chooses the range of an operand: "min_max", all that was seen; "percentile": so many percent of it.
    per_channel: a scale for each output channel of a weight, or one for all of it.
    exclude: names of layers that stay as they are, as QuantizedGraph.layers has them; "*" stands for anything. keep_first,
        keep_last: so does the first, or the last one.
    progress: a bar while the calibration takes long; by default, on a terminal.

    Operands are uint8 with a zero point, weights int8 from -127 to 127, sums int32. On a processor without VNNI, floats are
    computed from the same integers, and results differ by a step at most.
    """
    if mode not in MODES:
        raise ValueError(f"quantize: mode is {mode!r}; must be 'static', 'dynamic' or 'qdq'")
    if method not in METHODS:
        raise ValueError(f"quantize: method is {method!r}; must be 'min_max' or 'percentile'")
    if not 50 < percentile <= 100:
        raise ValueError(f"quantize: percentile is {percentile}; must be above 50, and 100 at most")
    batches = iter(()) if calibration is None else iter(_not_a_batch(calibration))
    first = next(batches, None)
    if first is None and mode != "dynamic":
        raise ValueError(f"quantize: calibration is empty: got {calibration!r:.60}; mode {mode!r} needs at least one batch of "
                         "arguments")
    graph = _compiled(model, first)
    captured, calls = _calls(graph, model)
    chosen = _chosen(calls, list(exclude), keep_first, keep_last)
    weights = {call["weight"]: _quantized_weight(captured, call, per_channel) for call in chosen}
    sources: dict[int, Any] = {}
    if mode != "dynamic":
        bar = with_progress(itertools.chain([first], batches), f"{graph.name}: calibration", progress)
        seen = _observed(graph, captured, chosen, bar, lambda: observer(method, percentile))
        sources = {call["source"]: _scale(call["name"], seen[call["source"]]) for call in chosen}
    return made_of(graph, captured, calls, chosen, weights, sources, mode)


def made_of(graph: Any, captured: Any, calls: list[dict[str, Any]], chosen: list[dict[str, Any]], weights: dict[str, Any],
            sources: dict[int, Any], mode: str) -> QuantizedGraph:
    """The graph of integers of a compiled one, for layers, weights and ranges that are chosen."""
    session, functions = _one_session(graph), graph._call._functions
    made = _C.quantized(captured, [call["node"] for call in chosen], weights, sources)
    if mode == "static":
        made = _C.with_int8_kernels(made)
    meta = session.meta()
    options = {"name": f"{graph.name}-int8", "meta": {key: meta[key] for key in ("name", "signature") if key in meta}}
    config = getattr(graph, "config", None)
    compiled = _C.GraphSession(made, {**(config.for_session() if config is not None else {}), **options}, functions)
    layers = [Layer(call["name"], call["op"], call["weight"], *_numbers(sources.get(call["source"]))) for call in chosen]
    kept = [call["name"] for call in calls if call not in chosen]
    return QuantizedGraph(options["name"], compiled, functions, mode, layers, kept)


def _calls(graph: Any, model: Any) -> tuple[Any, list[dict[str, Any]]]:
    """(what was captured, the convolutions and products by weights in it, by the names of their modules in the model)"""
    captured, prefix = _one_session(graph).captured(), "function." if isinstance(model, Module) else ""
    calls = _C.quantizable_calls(captured)
    for call in calls:
        call["name"] = (call["module"] or call["weight"]).removeprefix(prefix)
    return captured, calls


def _not_a_batch(calibration: Any) -> Any:
    if isinstance(calibration, (_C.Tensor, np.ndarray, dict)) or not hasattr(calibration, "__iter__"):
        raise TypeError(f"quantize: calibration is one {type(calibration).__name__}; must be an iterable of batches: [batch] "
                        "of a single one")
    return calibration


def _arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def tensor(value: Any) -> Any:
        return from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value

    if isinstance(batch, dict):
        return (), {name: tensor(value) for name, value in batch.items()}
    return tuple(map(tensor, batch if isinstance(batch, (tuple, list)) else (batch,))), {}


def _compiled(model: Any, first: Any) -> Any:
    """The model as a graph that is compiled; `first` says for which arguments."""
    if isinstance(model, (str, os.PathLike)):
        return load_graph(model)
    if isinstance(model, LoadedGraph):
        return model
    if isinstance(model, Module):
        training = [name or type(model).__name__ for name, module in model.named_modules() if module.training]
        if training:
            raise ValueError(f"quantize: '{training[0]}' is in training mode; call eval() of the model first")
        model = Graph.trace(model)
    if not isinstance(model, Graph):
        raise TypeError(f"quantize: got {type(model).__name__}; must be a module, an nn.Graph, a loaded graph or the path of a "
                        "bundle")
    if not model.is_compiled:
        if first is None:
            raise ValueError(f"quantize: graph '{model.name}' is not compiled, and there is no calibration; give one batch of "
                             "arguments")
        args, kwargs = _arguments(first)
        with no_grad():
            model.compile(*args, **kwargs)
    return model


def _one_session(graph: Any) -> Any:
    if not isinstance(graph._call, GraphCall):
        raise NotImplementedError(f"quantize: graph '{graph.name}' has several plans; quantize graphs of one plan, each by "
                                  "itself")
    return graph._call.session


def _chosen(calls: list[dict[str, Any]], exclude: list[str], keep_first: bool, keep_last: bool) -> list[dict[str, Any]]:
    names = [call["name"] for call in calls]
    for pattern in exclude:
        if not fnmatch.filter(names, pattern):
            raise ValueError(f"quantize: exclude: no layer is named {pattern!r}; there are {names}")
    kept = {*names[:1 if keep_first else 0], *(names[-1:] if keep_last else ())}
    chosen = [c for c in calls if c["name"] not in kept and not any(fnmatch.fnmatchcase(c["name"], p) for p in exclude)]
    if not chosen:
        raise ValueError(f"quantize: nothing is left to quantize: the graph has the layers {names}, of float32, by weights "
                         "that no step changes; exclude fewer of them")
    return chosen


def _quantized_weight(captured: Any, call: dict[str, Any], per_channel: bool) -> tuple[Any, Any]:
    """(int8, scales) of a weight."""
    weight = _C.variable_of(captured, call["weight"]).detach()
    rows = weight.transpose(0, call["axis"]) if call["axis"] else weight
    if not bool(rows.isfinite().all()):
        raise ValueError(f"quantize: the weight of '{call['name']}' has values that are not finite; train the model again, or "
                         "exclude it")
    scale, zero = MinMaxObserver(per_layer_quantization=not per_channel)(rows)
    scale = fn.where(scale == 0, 1.0, scale)  # of nothing but zeros
    integers = Quantization()(rows, scale, zero)
    return (integers.transpose(0, call["axis"]) if call["axis"] else integers).to(_C.int8).contiguous(), scale.contiguous()


def _observed(graph: Any, captured: Any, chosen: list[dict[str, Any]], batches: Iterable[Any], new: Any) -> dict[int, Any]:
    """By value, an observer that has seen it in all batches."""
    values = sorted({call["source"] for call in chosen})
    seen = {value: new() for value in values}
    session = _C.GraphSession(_C.observing(captured, values), {"name": f"{graph.name}-observed"}, graph._call._functions)
    for batch in batches:
        args, kwargs = _arguments(batch)
        for value, tensor in zip(values, session.call(graph._call.check(graph._given(args, kwargs)), -1.0)):
            seen[value].see(tensor.numpy())
    return seen


def _scale(name: str, seen: Any) -> tuple[Any, Any]:
    """(scale, zero point) of what was seen, 0 included."""
    low, high = seen.range()
    if not (np.isfinite(low) and np.isfinite(high)):
        what = "nothing" if low > high else "values that are not finite"
        raise ValueError(f"quantize: the operand of '{name}' had {what} in the calibration; give other data, or exclude the "
                         "layer")
    if low == high:
        raise ValueError(f"quantize: the operand of '{name}' was {low:g} in all of the calibration; give data that differ, or "
                         "exclude the layer")
    ends = creation.tensor([[min(low, 0.0)], [max(high, 0.0)]], dtype=_C.float32)
    scale, zero = MinMaxObserver(quantization_scheme="affine")._parameters_of(ends[0], ends[1])
    return scale.contiguous(), zero.to(_C.int32).contiguous()


def _numbers(parameters: Any) -> tuple[float | None, int | None]:
    return (None, None) if parameters is None else (parameters[0].item(), parameters[1].item())
