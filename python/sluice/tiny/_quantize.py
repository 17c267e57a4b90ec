"""Networks of floats as networks of 8-bit integers."""

from __future__ import annotations

import copy
from typing import Any, Iterable

from sluice import _C
from sluice._base.grad_mode import no_grad
from sluice._C import fn
from sluice.nn import BatchNorm2d, Conv2d, Identity, Linear, Module, Parameter, ReLU, ReLU6
from sluice.tiny._int8 import Int8Conv2d, Int8Linear, layers_of
from sluice.tiny._scales import Format, LayerScales, read, text_of


def quantize(model: Any, batches: Iterable[Any], *, scales: Any = None, requantize: str = "float") -> Any:
    """A copy of a network in which convolutions and products are of 8-bit integers, ready for TrainStep.

    model: a module with Conv2d and Linear layers. A BatchNorm2d behind a Conv2d becomes part of it, and a ReLU or ReLU6 behind any is
        what the result's range saturates to; the first batch shows what is behind what. Other modules compute in floats.
    batches: inputs as the network will see them; the ranges of activations are those that occur.
    scales: the path of a file of write_scales(), whose scales are taken in place of those ranges.
    requantize: how sums of products become 8-bit integers: "float", by a float of each channel and a bias of floats; or "fixed", by
        integers alone, whose bits are those of TFLite's reference kernels, on every device.

    The last layer gives floats. Weights are int8 with a scale for each output channel; activations that are never negative uint8.
    """
    given = list(batches)
    if not given:
        raise _C.ValueError("tiny.quantize: there are no batches; give some, as the network is called with")
    if requantize not in ("float", "fixed"):
        raise _C.ValueError(f'tiny.quantize: requantize is "{requantize}"; must be float or fixed')
    made = copy.deepcopy(model).eval()
    with no_grad():
        last = _join(made, given[0])
        watched = {name: m for name, m in made.named_modules() if isinstance(m, _Layer)}
        if scales is None:
            found = _calibrated(made, given, watched, last)
        else:
            found = read(scales, {name: m.layer.weight.shape[0] for name, m in watched.items()})
        for name, module in watched.items():
            layer, scale = module.layer, found[name]
            kind, source = (Int8Conv2d, _Geometry(layer)) if isinstance(layer, Conv2d) else (Int8Linear, None)
            integers = kind(source, layer.weight.detach(), None if layer.bias is None else layer.bias.detach(), scale,
                            requantize == "fixed")
            if scale.output is None:  # nothing saturates
                integers.behind = module.behind
            _replace(made, name, integers)
    return made


def write_scales(net: Any, path: Any) -> None:
    """Writes the scales of a quantized network as text, a line for each tensor, which quantize(model, batches, scales=path) reads.

    The same floats then become the same integers. Steps of training do not change scales.
    """
    scales = {name: LayerScales(layer.form, layer.out, tuple(layer.weight_scale.tolist())) for name, layer in layers_of(net).items()}
    with open(path, "w") as file:
        file.write(text_of(scales))


class _Layer(Module):
    """A convolution or product with what is behind it."""

    def __init__(self, layer: Any, behind: Any) -> None:
        super().__init__()
        self.layer, self.behind = layer, behind

    def forward(self, x: Any) -> Any:
        return self.behind(self.layer(x))


class _Geometry:
    def __init__(self, conv: Any) -> None:
        padding = conv.padding
        if isinstance(padding, str):
            both = [0 if padding == "valid" else d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size)]
            padding = tuple(zeros // 2 for zeros in both) if not any(zeros % 2 for zeros in both) else padding
        if conv.padding_mode != "zeros" or isinstance(padding, str):
            raise _C.ValueError(f"tiny.quantize: {conv}: its padding must be zeros, as many on either side")
        self.stride, self.padding, self.dilation, self.groups = conv.stride, padding, conv.dilation, conv.groups


def _called(net: Any, batch: Any) -> Any:
    return net(*batch) if isinstance(batch, tuple) else net(batch)


def _replace(root: Any, name: str, module: Any) -> None:
    parent, _, child = name.rpartition(".")
    root.get_submodule(parent)._modules[child] = module


# A tensor as it was at a time: later writes in place, such as `x += shortcut`, make another value of it.
_Value = tuple[Any, int]


def _join(net: Any, batch: Any) -> str:
    """Puts what is behind a convolution or product into a _Layer. Returns the name of the one that is called last."""
    names = {module: name for name, module in net.named_modules()}
    calls: list[tuple[Any, _Value, _Value]] = []  # in order; tensors are kept, so that none is taken for another
    given: dict[Any, _Value] = {}

    def begin(module: Any, inputs: Any) -> None:
        given[module] = (inputs[0], inputs[0]._version)

    def end(module: Any, inputs: Any, output: Any) -> None:
        calls.append((module, given.pop(module), (output, output._version)))

    read = [module for module in names if isinstance(module, (Conv2d, Linear, BatchNorm2d, ReLU, ReLU6))]
    hooks = [hook for module in read for hook in (module.register_forward_pre_hook(begin), module.register_forward_hook(end))]
    before = _called(net, batch)
    for hook in hooks:
        hook.remove()
    times = {module: sum(called is module for called, _, _ in calls) for module in names}
    layers = [module for module in names if isinstance(module, (Conv2d, Linear))]
    if not layers:
        raise _C.ValueError("tiny.quantize: the network has no Conv2d and no Linear")
    missing = [names[module] for module in layers if not times[module]]
    if missing:
        raise _C.ValueError(f"tiny.quantize: no batch has reached {missing}; give batches, as the network is called with")
    last = [module for module, _, _ in calls if module in layers][-1]
    for module in layers:
        _replace(net, names[module], _Layer(module, _taken(net, names, times, calls, module)))
    after = _called(net, batch)
    largest = max(before.abs().max().item(), 1e-6)
    if (after - before).abs().max().item() > 1e-3 * largest:
        raise _C.ValueError("tiny.quantize: the network reads a result of a Conv2d both with and without the BatchNorm2d or ReLU behind it; "
                            "give each reader a layer of its own")
    return names[last]


def _taken(net: Any, names: dict[Any, str], times: dict[Any, int], calls: list[tuple[Any, _Value, _Value]], layer: Any) -> Any:
    """Takes batch norm and ReLU from behind a layer, and returns the ReLU."""
    behind: Any = Identity()
    if times[layer] != 1:
        return behind
    output = next(made for module, _, made in calls if module is layer)
    for module, given, made in calls:
        if given[0] is not output[0] or given[1] != output[1] or times[module] != 1 or isinstance(module, (Conv2d, Linear)):
            continue
        if isinstance(module, BatchNorm2d):
            if not isinstance(layer, Conv2d) or not isinstance(behind, Identity):
                break
            _fold(layer, module)
        else:
            behind = copy.copy(module)
            behind.inplace = False
        _replace(net, names[module], Identity())
        if not isinstance(behind, Identity):
            break
        output = made
    return behind


def _fold(conv: Any, norm: Any) -> None:
    gain = (norm.running_var + norm.eps).rsqrt()
    shift = -norm.running_mean * gain
    if norm.weight is not None:
        gain, shift = gain * norm.weight, shift * norm.weight + norm.bias
    conv.weight.copy_(conv.weight * gain.reshape(-1, 1, 1, 1))
    conv.bias = Parameter((shift if conv.bias is None else shift + conv.bias * gain).clone())


def _calibrated(net: Any, batches: list[Any], watched: dict[str, Any], last: str) -> dict[str, LayerScales]:
    """Scales from the ranges of what occurs."""
    seen: dict[str, list[float]] = {}

    def look(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            now = [inputs[0].min().item(), inputs[0].max().item(), output.min().item(), output.max().item()]
            old = seen.setdefault(name, now)
            seen[name] = [f(a, b) for f, a, b in zip((min, max, min, max), old, now)]
        return hook

    hooks = [module.register_forward_hook(look(name)) for name, module in watched.items()]
    for batch in batches:
        _called(net, batch)
    for hook in hooks:
        hook.remove()
    found = {}
    for name, (low, high, below, above) in seen.items():
        weight = watched[name].layer.weight
        largest = weight.abs().reshape(weight.shape[0], -1).amax(1)
        found[name] = LayerScales(Format.of(low, high), None if name == last else Format.of(below, above),
                                  tuple(fn.clamp(largest / 127, min=1e-8).tolist()))
    return found
