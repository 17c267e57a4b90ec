"""Networks of floats as networks of 8-bit integers."""

from __future__ import annotations

import copy
from typing import Any, Iterable

from sluice import _C
from sluice._base.grad_mode import no_grad
from sluice._C import fn
from sluice.nn import BatchNorm2d, Conv2d, Identity, Linear, Parameter, ReLU, ReLU6, Sequential
from sluice.tiny._int8 import Int8Conv2d, Int8Linear, layers_of
from sluice.tiny._scales import Format, LayerScales, read, text_of


def quantize(model: Any, batches: Iterable[Any] | None = None, *, scales: Any = None) -> Any:
    """A copy of a network in which convolutions and products are of 8-bit integers, ready for TrainStep.

    model: a module with Conv2d and Linear layers. BatchNorm2d behind a Conv2d in a Sequential is folded into it, and a ReLU or ReLU6
        behind either is what the result's range saturates to. Other modules compute in floats, between integers.
    batches: inputs as the network will see them; the ranges of activations are those that occur.
    scales: the path of a file of write_scales(), in place of batches.

    The last layer gives floats. Weights are int8 with a scale for each output channel; activations that are never negative uint8.
    """
    made = copy.deepcopy(model).eval()
    _fold(made)
    watched = {name: m for name, m in made.named_modules() if isinstance(m, (Conv2d, Linear))}
    if not watched:
        raise _C.ValueError("tiny.quantize: the network has no Conv2d and no Linear")
    if (batches is None) == (scales is None):
        raise _C.ValueError("tiny.quantize: needs either batches or the file of their scales")
    followed = _followed(made)
    with no_grad():
        if scales is None:
            found = _calibrated(made, batches, watched, followed)
        else:
            found = read(scales, {name: module.weight.shape[0] for name, module in watched.items()})
        for name, module in watched.items():
            kind, source = (Int8Conv2d, _Geometry(module)) if isinstance(module, Conv2d) else (Int8Linear, None)
            bias = None if module.bias is None else module.bias.detach()
            _replace(made, name, kind(source, module.weight.detach(), bias, found[name]))
    for name in followed.values():
        _replace(made, name, Identity())
    return made


def write_scales(net: Any, path: Any) -> None:
    """Writes the scales of a quantized network as text, a line for each tensor, which quantize(model, scales=path) reads.

    The same floats then become the same integers. Steps of training do not change scales.
    """
    scales = {name: LayerScales(layer.form, layer.out, tuple(layer.weight_scale.tolist())) for name, layer in layers_of(net).items()}
    with open(path, "w") as file:
        file.write(text_of(scales))


def _calibrated(net: Any, batches: Any, watched: dict[str, Any], followed: dict[str, str]) -> dict[str, LayerScales]:
    """Scales from the ranges of what occurs."""
    seen: dict[str, list[float]] = {}

    def look(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            y = net.get_submodule(followed[name])(output) if name in followed else output
            now = [inputs[0].min().item(), inputs[0].max().item(), y.min().item(), y.max().item()]
            old = seen.setdefault(name, now)
            seen[name] = [f(a, b) for f, a, b in zip((min, max, min, max), old, now)]
        return hook

    hooks = [module.register_forward_hook(look(name)) for name, module in watched.items()]
    for batch in batches:
        net(*batch) if isinstance(batch, tuple) else net(batch)
    for hook in hooks:
        hook.remove()
    missing = [name for name in watched if name not in seen]
    if missing:
        raise _C.ValueError(f"tiny.quantize: no batch has reached {missing}; give batches, as the network is called with")
    last = list(seen)[-1]
    found = {}
    for name, (low, high, below, above) in seen.items():
        weight = watched[name].weight
        largest = weight.abs().reshape(weight.shape[0], -1).amax(1)
        found[name] = LayerScales(Format.of(low, high), None if name == last else Format.of(below, above),
                                  tuple(fn.clamp(largest / 127, min=1e-8).tolist()))
    return found


class _Geometry:
    def __init__(self, conv: Any) -> None:
        if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
            raise _C.ValueError(f"tiny.quantize: {conv}: its padding must be a number of zeros")
        self.stride, self.padding, self.dilation, self.groups = conv.stride, conv.padding, conv.dilation, conv.groups


def _replace(root: Any, name: str, module: Any) -> None:
    parent, _, child = name.rpartition(".")
    root.get_submodule(parent)._modules[child] = module


def _followed(root: Any) -> dict[str, str]:
    """Layers with a ReLU or ReLU6 behind them in a Sequential, and the name of that."""
    found = {}
    for name, module in root.named_modules():
        if not isinstance(module, Sequential):
            continue
        children = [(f"{name}.{key}" if name else key, child) for key, child in module._modules.items()
                    if not isinstance(child, Identity)]
        for (here, layer), (there, relu) in zip(children, children[1:]):
            if isinstance(layer, (Conv2d, Linear)) and isinstance(relu, (ReLU, ReLU6)):
                found[here] = there
    return found


def _fold(root: Any) -> None:
    """Batch norms behind convolutions become part of these."""
    for module in root.modules():
        if not isinstance(module, Sequential):
            continue
        children = list(module._modules.items())
        for (_, conv), (key, norm) in zip(children, children[1:]):
            if not (isinstance(conv, Conv2d) and isinstance(norm, BatchNorm2d)):
                continue
            with no_grad():
                gain = norm.weight / (norm.running_var + norm.eps).sqrt()
                bias = norm.bias - norm.running_mean * gain + (0 if conv.bias is None else conv.bias * gain)
                conv.weight.copy_(conv.weight * gain.reshape(-1, 1, 1, 1))
                conv.bias = Parameter(bias.clone())
            module._modules[key] = Identity()
