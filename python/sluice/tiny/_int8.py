"""Networks whose weights and activations are 8-bit integers, and that train so."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Iterable

from sluice import _C
from sluice._base.grad_mode import no_grad
from sluice._C import fn
from sluice._tensor import creation
from sluice.autograd import Function
from sluice.nn import BatchNorm2d, Conv2d, Identity, Linear, Module, Parameter, ReLU, ReLU6, Sequential
from sluice.tiny._steps import int8_sgd

_RANGES = {_C.uint8: (0, 255), _C.int8: (-128, 127)}


@dataclass(frozen=True)
class Format:
    """8-bit integers that stand for q * scale: uint8 of what is never negative, else int8."""

    dtype: Any
    scale: float

    @staticmethod
    def of(low: float, high: float) -> Format:
        if low >= 0:
            return Format(_C.uint8, max(high, 1e-8) / 255)
        return Format(_C.int8, max(-low / 128, high / 127, 1e-8))

    def quantize(self, x: Any) -> Any:
        return _C.ops.quantize(x, creation.tensor([self.scale]), None, dtype=self.dtype)


@dataclass
class Training:
    """How the layers of a network change in a step (TrainStep sets it)."""

    lr: Any  # float32 scalar
    step: Any  # int64 scalar
    qas: bool = True
    rounding: str = "stochastic"
    seed: int = 0
    late: bool = False  # weights change behind the whole backward pass, for which their gradients wait


class _Product(Function):
    """A convolution or product of integers. Its gradients go straight through the rounding, but not where a result was saturated,
    which is seen from the result itself. Weights change as soon as their gradient is known, so that it need not be kept."""

    @staticmethod
    def forward(ctx: Any, x: Any, anchor: Any, layer: Any, q: Any, form: Format) -> Any:
        ctx.layer, ctx.q, ctx.form, ctx.has_anchor = layer, q, form, anchor is not None
        out = layer.out
        scale = layer.weight_scale * (form.scale / out.scale if out else form.scale)
        shift = layer.bias / out.scale if out else layer.bias
        ctx.result = layer.last = layer.product(q, scale, shift, out.dtype if out else None)
        return ctx.result.to(_C.float32) * out.scale if out else ctx.result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        layer = ctx.layer
        if layer.out:
            low, high = _RANGES[layer.out.dtype]
            inside = (ctx.result > low) & (ctx.result < high)
            grad = fn.where(inside, grad, creation.tensor(0.0))
        into = None
        if ctx.needs_input_grad[0]:
            into = layer.input_gradient(grad * layer.along_channels(layer.weight_scale), ctx.q.shape)
        if ctx.has_anchor:
            layer.slopes.append(layer.slopes_of(grad, ctx.q, ctx.form))
            if not layer.training_as.late:
                layer.step()
        return into, None, None, None, None


class _Int8(Module):
    """weight: int8, the input channels that change; weight_stays: those behind them, or None. weight_scale: float32, one for each
    output channel; bias: float32, in units of the result."""

    def __init__(self, source: Any, weight: Any, bias: Any, form: Format, out: Format | None) -> None:
        super().__init__()
        channels = weight.shape[0]
        largest = weight.abs().reshape(channels, -1).amax(1)
        scale = fn.clamp(largest / 127, min=1e-8)
        self.register_buffer("weight_stays", None)
        self.register_buffer("weight", fn.clamp((weight / self.along(scale, weight.dim())).round(), -127, 127).to(_C.int8))
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", creation.zeros(channels) if bias is None else bias.clone())
        self.anchor = Parameter(creation.zeros(1))  # asks for a backward pass where weights are no parameters
        self.form, self.out, self.source = form, out, source
        self.ratio, self.bias_trains = 1.0, True
        self.training_as: Any = None  # Training, where it is trained
        self.last: Any = None
        self.slopes: list[tuple[Any, Any]] = []

    @staticmethod
    def along(row: Any, rank: int) -> Any:
        return row.reshape(-1, *[1] * (rank - 1))

    def whole(self) -> Any:
        return self.weight if self.weight_stays is None else fn.cat([self.weight, self.weight_stays], 1)

    def change(self, ratio: float, bias: bool) -> None:
        """Says how much of the weight a step changes, and whether it does the bias. The rest is a tensor of its own, which need
        not lie in RAM."""
        self.ratio, self.bias_trains = ratio, bias
        with no_grad():
            whole = self.whole()
            columns = max(1, round(ratio * whole.shape[1])) if 0 < ratio < 1 else whole.shape[1]
            self.register_buffer("weight", whole[:, :columns].clone())
            self.register_buffer("weight_stays", whole[:, columns:].clone() if columns < whole.shape[1] else None)

    @property
    def trains(self) -> bool:
        return self.training_as is not None and (self.ratio > 0 or self.bias_trains)

    def forward(self, x: Any) -> Any:
        q, form = getattr(x, "_int8", (x, self.form))
        if q.dtype != form.dtype:
            q = form.quantize(x)
        y = _Product.apply(x, self.anchor if self.trains else None, self, q, form)
        if self.out:
            y._int8 = (self.last, self.out)
        self.last = None
        return y

    def slopes_of(self, grad: Any, q: Any, form: Format) -> tuple[Any, Any]:
        """The gradients of the weight, or the part that changes, and of the bias; None of what stays."""
        slope = None
        if self.ratio > 0:
            scale = self.weight_scale
            factor = form.scale / scale if self.training_as.qas else form.scale * scale
            part = q if self.weight_stays is None else q[:, :self.weight.shape[1]]
            slope = self.weight_gradient(grad, part, list(self.weight.shape))
            slope = slope * self.along(factor, slope.dim())
        return slope, self.sum_of(grad) if self.bias_trains else None

    def step(self) -> None:
        """Moves weight and bias against the gradients of the backward pass."""
        how = self.training_as
        for slope, shift in self.slopes:
            if slope is not None:
                self.weight.copy_(int8_sgd(self.weight, slope, how.lr, how.step, how.rounding, how.seed))
            if shift is not None:
                self.bias.copy_(self.bias - how.lr * shift)
        self.slopes.clear()


class Int8Conv2d(_Int8):
    def product(self, q: Any, scale: Any, shift: Any, dtype: Any) -> Any:
        return _C.ops.int8_conv(q, self.whole(), scale, shift, None, None, None, dtype=dtype, **self.geometry)

    @property
    def geometry(self) -> dict[str, Any]:
        c = self.source
        return {"stride": list(c.stride), "padding": list(c.padding), "dilation": list(c.dilation), "groups": c.groups}

    def along_channels(self, row: Any) -> Any:
        return row.reshape(1, -1, 1, 1)

    def input_gradient(self, grad: Any, shape: Any) -> Any:
        return _C.ops.conv_input_grad(grad, self.whole().to(_C.float32), input_shape=list(shape), **self.geometry)

    def weight_gradient(self, grad: Any, q: Any, shape: Any) -> Any:
        return _C.ops.conv_weight_grad(grad, q.to(_C.float32), weight_shape=shape, **self.geometry)

    def sum_of(self, grad: Any) -> Any:
        return grad.sum((0, 2, 3))


class Int8Linear(_Int8):
    def product(self, q: Any, scale: Any, shift: Any, dtype: Any) -> Any:
        return _C.ops.int8_linear(q, self.whole(), scale, shift, None, dtype=dtype)

    def along_channels(self, row: Any) -> Any:
        return row

    def input_gradient(self, grad: Any, shape: Any) -> Any:
        return grad @ self.whole().to(_C.float32)

    def weight_gradient(self, grad: Any, q: Any, shape: Any) -> Any:
        return grad.reshape(-1, grad.shape[-1]).t() @ q.to(_C.float32).reshape(-1, q.shape[-1])

    def sum_of(self, grad: Any) -> Any:
        return grad.reshape(-1, grad.shape[-1]).sum(0)


def layers_of(net: Any) -> dict[str, Any]:
    """The layers of integers by name, in the order of the modules."""
    return {name: module for name, module in net.named_modules() if isinstance(module, _Int8)}


def quantize(model: Any, batches: Iterable[Any]) -> Any:
    """A copy of a network in which convolutions and products are of 8-bit integers, ready for TrainStep.

    model: a module with Conv2d and Linear layers. BatchNorm2d behind a Conv2d in a Sequential is folded into it, and a ReLU or ReLU6
        behind either is what the result's range saturates to. Other modules compute in floats, between integers.
    batches: inputs as the network will see them; the ranges of activations are those that occur.

    The last layer gives floats. Weights are int8 with a scale for each output channel; activations that are never negative uint8.
    """
    made = copy.deepcopy(model).eval()
    _fold(made)
    seen: dict[str, list[float]] = {}
    watched = {name: m for name, m in made.named_modules() if isinstance(m, (Conv2d, Linear))}
    if not watched:
        raise _C.ValueError("tiny.quantize: the network has no Conv2d and no Linear")
    followed = _followed(made)

    def look(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            y = made.get_submodule(followed[name])(output) if name in followed else output
            now = [inputs[0].min().item(), inputs[0].max().item(), y.min().item(), y.max().item()]
            old = seen.setdefault(name, now)
            seen[name] = [f(a, b) for f, a, b in zip((min, max, min, max), old, now)]
        return hook

    hooks = [module.register_forward_hook(look(name)) for name, module in watched.items()]
    with no_grad():
        for batch in batches:
            made(*batch) if isinstance(batch, tuple) else made(batch)
    for hook in hooks:
        hook.remove()
    missing = [name for name in watched if name not in seen]
    if missing:
        raise _C.ValueError(f"tiny.quantize: no batch has reached {missing}; give batches, as the network is called with")
    last = [name for name in seen][-1]
    for name, module in watched.items():
        low, high, below, above = seen[name]
        kind = Int8Conv2d if isinstance(module, Conv2d) else Int8Linear
        with no_grad():
            bias = None if module.bias is None else module.bias.detach()
            layer = kind(_Geometry(module) if kind is Int8Conv2d else None, module.weight.detach(), bias, Format.of(low, high),
                         None if name == last else Format.of(below, above))
        _replace(made, name, layer)
    for name in followed.values():
        _replace(made, name, Identity())
    return made


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
