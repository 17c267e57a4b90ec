"""Models that were trained with rounded layers, as graphs of integers."""

from __future__ import annotations

import fnmatch
from typing import Any, Iterable

from sluice import _C
from sluice._C import fn
from sluice.nn.modules.module import Module
from sluice.nn.modules.quantization import exact_layers, observed, Qat, QatConfig
from sluice.quantization._quantize import _calls, _compiled, _quantized_weight, made_of, QuantizedGraph


def prepare(model: Module, config: QatConfig | None = None) -> list[str]:
    """Makes the convolutions and linear layers of a model such that round their inputs and weights to 8-bit integers, and observe ranges
    while they are trained; `graph.config.enable_quantization_aware_training()` does it for a graph. Returns their names."""
    if not isinstance(model, Module):
        raise TypeError(f"prepare: got {type(model).__name__}; must be a module")
    return observed(model, config or QatConfig())


def convert(model: Module, arguments: Any, *, mode: str = "static", exclude: Iterable[str] = ()) -> QuantizedGraph:
    """A graph that computes with 8-bit integers what a model does whose layers have observed ranges in training: those ranges are its
    scales. The model stays as it is, and must be in eval mode.

    arguments: as the model is called with: a tensor or array, a tuple of several, or a dict by name; for their shapes.
    mode: "static", a graph of integer kernels, or "qdq", which keeps pairs of quantize and dequantize: see quantize(). A graph of the
        latter is exported by sluice.onnx.export.
    exclude: names of layers that stay as they are; "*" stands for anything. So do layers without observers, and those that no step of
        training has run: QuantizedGraph.kept names them.
    """
    if mode not in ("static", "qdq"):
        raise ValueError(f"convert: mode is {mode!r}; must be 'static' or 'qdq'")
    if not isinstance(model, Module):
        raise TypeError(f"convert: got {type(model).__name__}; must be a module")
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, Qat) and int(layer.input_observer.current_train_step) > 0}
    if not layers:
        raise ValueError("convert: no layer of the model has observed a range; train it in a graph with "
                         "config.enable_quantization_aware_training(), or after prepare(model)")
    with exact_layers():
        graph = _compiled(model, arguments)
    captured, calls = _calls(graph, model)
    chosen = [call for call in calls if call["name"] in layers and not any(fnmatch.fnmatchcase(call["name"], p) for p in exclude)]
    if not chosen:
        raise ValueError(f"convert: nothing is left to quantize: layers with ranges are {sorted(layers)}; exclude fewer of them")
    weights, ranges = {}, {}
    for call in chosen:
        layer = layers[call["name"]]
        weights[call["weight"]] = _quantized_weight(captured, call, not layer.weight_observer.per_layer_quantization)
        ranges.setdefault(call["source"], []).append(layer.input_observer)
    return made_of(graph, captured, calls, chosen, weights, {source: _scale(observers) for source, observers in ranges.items()}, mode)


def _scale(observers: list[Any]) -> tuple[Any, Any]:
    """(scale, zero point), of unsigned bytes, of a value that these have observed; where several have, the widest range."""
    first = observers[0]
    low, high = first.moving_min.detach(), first.moving_max.detach()
    for other in observers[1:]:
        low, high = fn.minimum(low, other.moving_min.detach()), fn.maximum(high, other.moving_max.detach())
    scale, zero = first._parameters_of(low, high)
    if first.quantization_scheme == "symmetric":
        zero = zero + 128  # signed bytes there
    return fn.where(scale == 0, 1.0, scale).contiguous(), zero.to(_C.int32).contiguous()
