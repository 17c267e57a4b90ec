"""Networks whose weights and activations are 8-bit integers, and that train so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sluice import _C
from sluice._base.grad_mode import no_grad
from sluice._C import fn
from sluice._tensor import creation
from sluice.autograd import Function
from sluice.nn import Module, Parameter
from sluice.tiny._scales import Format, LayerScales, fixed_point
from sluice.tiny._steps import int8_sgd, int8_sgd_carry

_RANGES = {_C.uint8: (0, 255), _C.int8: (-128, 127)}


def _range_of(form: Format) -> dict[str, Any]:
    low, high = _RANGES[form.dtype]
    return {"dtype": form.dtype, "low": low, "high": high}


@dataclass
class Training:
    """How the layers of a network change in a step (TrainStep sets it)."""

    lr: Any  # float32 scalar
    step: Any  # int64 scalar
    qas: bool = True
    rounding: str = "stochastic"
    seed: int = 0
    accumulate: int = 1  # steps whose gradients add up before weights change
    late: bool = False  # weights change behind the whole backward pass, for which their gradients wait


class _Product(Function):
    """A convolution or product of integers. Its gradients go straight through the rounding, but not where a result was saturated,
    which is seen from the result itself. Weights change as soon as their gradient is known, so that it need not be kept."""

    @staticmethod
    def forward(ctx: Any, x: Any, anchor: Any, layer: Any, q: Any, form: Format) -> Any:
        ctx.layer, ctx.q, ctx.form, ctx.has_anchor = layer, q, form, anchor is not None
        out = layer.out
        if out and layer.fixed:
            ctx.result = layer.last = layer.fixed_product(q, (layer.bias / (layer.weight_scale * form.scale)).round().to(_C.int32))
        else:
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
    output channel; bias: float32, in units of the result. Of a layer in fixed point, multiplier and exponent: int32, the numbers
    by which sums become the integers of the result. weight_rest, weight_sum and bias_sum: what steps leave for later ones."""

    def __init__(self, source: Any, weight: Any, bias: Any, scales: LayerScales, fixed: bool = False) -> None:
        super().__init__()
        self.fixed = fixed
        channels, scale = weight.shape[0], creation.tensor(scales.weight, dtype=_C.float32)
        self.register_buffer("weight_stays", None)
        self.register_buffer("weight", fn.clamp((weight / self.along(scale, weight.dim())).round(), -127, 127).to(_C.int8))
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", creation.zeros(channels) if bias is None else bias.clone())
        if fixed and scales.output:
            ratio = scales.input.scale / scales.output.scale
            pairs = [fixed_point(float(np.float32(s)) * ratio) for s in scales.weight]
            for i, name in enumerate(("multiplier", "exponent")):
                self.register_buffer(name, creation.tensor([pair[i] for pair in pairs], dtype=_C.int32))
        for name in ("weight_rest", "weight_sum", "bias_sum"):
            self.register_buffer(name, None)
        self.anchor = Parameter(creation.zeros(1))  # asks for a backward pass where weights are no parameters
        self.form, self.out, self.source = scales.input, scales.output, source
        self.behind: Any = None  # a module, where a result of floats goes through one
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

    def train_as(self, how: Training) -> None:
        """REQUIRES: change() has said what changes."""
        self.training_as = how
        several, weight = how.accumulate > 1, self.ratio > 0
        zeros = {"weight_rest": (weight and how.rounding == "carry", self.weight, _C.int8),
                 "weight_sum": (weight and several, self.weight, _C.float32), "bias_sum": (self.bias_trains and several, self.bias, _C.float32)}
        for name, (wanted, like, dtype) in zeros.items():
            self.register_buffer(name, creation.zeros(like.shape, dtype=dtype) if wanted else None)

    @property
    def trains(self) -> bool:
        return self.training_as is not None and (self.ratio > 0 or self.bias_trains)

    def forward(self, x: Any) -> Any:
        q, form = getattr(x, "_int8", (x, self.form))
        if q.dtype != form.dtype or (self.fixed and form != self.form):
            q, form = self.form.quantize(x), self.form
        y = _Product.apply(x, self.anchor if self.trains else None, self, q, form)
        if self.out:
            y._int8 = (self.last, self.out)
        self.last = None
        return y if self.behind is None else self.behind(y)

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
                slope = self._added("weight_sum", slope)
                if self.weight_rest is None:
                    self.weight.copy_(int8_sgd(self.weight, slope, how.lr, how.step, how.rounding, how.seed))
                else:
                    moved, rest = int8_sgd_carry(self.weight, self.weight_rest, slope, how.lr)
                    self.weight.copy_(moved)
                    self.weight_rest.copy_(rest)
            if shift is not None:
                self.bias.copy_(self.bias - how.lr * self._added("bias_sum", shift))
        self.slopes.clear()

    def _added(self, name: str, gradient: Any) -> Any:
        """The mean gradient of the last steps where weights change in this one; else zeros, by which nothing changes."""
        so_far, count = getattr(self, name), self.training_as.accumulate
        if so_far is None:
            return gradient
        now = fn.eq(fn.remainder(self.training_as.step, count), count - 1).to(_C.float32)
        total = so_far + gradient
        so_far.copy_(total * (1 - now))
        return total * (now / count)


class Int8Conv2d(_Int8):
    def product(self, q: Any, scale: Any, shift: Any, dtype: Any) -> Any:
        return _C.ops.int8_conv(q, self.whole(), scale, shift, None, None, None, dtype=dtype, **self.geometry)

    def fixed_product(self, q: Any, bias: Any) -> Any:
        return _C.ops.int8_conv_fixed(q, self.whole(), self.multiplier, self.exponent, bias, **_range_of(self.out), **self.geometry)

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

    def fixed_product(self, q: Any, bias: Any) -> Any:
        return _C.ops.int8_linear_fixed(q, self.whole(), self.multiplier, self.exponent, bias, **_range_of(self.out))

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
