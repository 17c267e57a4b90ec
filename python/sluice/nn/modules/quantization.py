"""Training for quantized inference, by OneFlow's names: observers of ranges, and values rounded as integers would be."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from numbers import Integral
from typing import Any, Iterator

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import zeros, zeros_like
from sluice.nn import functional as F
from sluice.nn.modules.conv import Conv1d, Conv2d, Conv3d
from sluice.nn.modules.linear import Linear
from sluice.nn.modules.module import Module


class _Scheme(Module):
    """How floats stand for integers of `quantization_bit` bits: q = round(x / scale) + zero_point.

    quantization_formula: "google" (any scale) or "cambricon" (powers of two: scale is the exponent); quantization_scheme:
    "symmetric" (zero_point 0) or "affine".
    """

    def __init__(self, quantization_formula: str = "google", quantization_bit: int = 8,
                 quantization_scheme: str = "symmetric") -> None:
        super().__init__()
        name = type(self).__name__
        if quantization_formula not in ("google", "cambricon"):
            raise ValueError(f"{name}: quantization_formula is {quantization_formula!r}; must be 'google' or 'cambricon'")
        if quantization_scheme not in ("symmetric", "affine"):
            raise ValueError(f"{name}: quantization_scheme is {quantization_scheme!r}; must be 'symmetric' or 'affine'")
        if not 2 <= quantization_bit <= 8:
            raise ValueError(f"{name}: quantization_bit is {quantization_bit}; must be from 2 to 8")
        if quantization_formula == "cambricon" and quantization_scheme != "symmetric":
            raise ValueError(f"{name}: quantization_formula 'cambricon' has the symmetric scheme alone")
        self.quantization_formula, self.quantization_bit, self.quantization_scheme = quantization_formula, quantization_bit, quantization_scheme

    def _range(self) -> tuple[float, float]:
        """The integers there are."""
        if self.quantization_scheme == "affine":
            return 0.0, 2.0**self.quantization_bit - 1
        return -(2.0 ** (self.quantization_bit - 1)), 2.0 ** (self.quantization_bit - 1) - 1

    def _parameters_of(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """(scale, zero_point) of values from low to high."""
        most = self._range()[1]
        if self.quantization_scheme == "affine":
            scale = (high - low) / most
            return scale, -(low / fn.where(scale == 0, 1.0, scale)).round()
        largest = fn.maximum(low.abs(), high.abs())
        if self.quantization_formula == "cambricon":
            return largest.log2().floor() - (self.quantization_bit - 2), zeros_like(largest)
        return largest / most, zeros_like(largest)

    def _quantized(self, x: Tensor, scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The integers of x, as floats, with the scale and zero point that broadcast to it."""
        if self.quantization_formula == "cambricon":
            scale = fn.exp2(scale)
        scale = fn.where(scale == 0, 1.0, scale)  # of nothing but zeros
        if scale.numel() > 1:
            scale, zero_point = (t.reshape(-1, *(1 for _ in x.shape[1:])) for t in (scale, zero_point))
        low, high = self._range()
        return ((x / scale).round() + zero_point).clamp(low, high), scale, zero_point

    def extra_repr(self) -> str:
        return f"formula={self.quantization_formula}, bit={self.quantization_bit}, scheme={self.quantization_scheme}"


class MinMaxObserver(_Scheme):
    """(scale, zero_point) of a tensor: of the whole, (1,), or of each slice of dim 0; oneflow.nn.MinMaxObserver."""

    def __init__(self, quantization_formula: str = "google", quantization_bit: int = 8, quantization_scheme: str = "symmetric",
                 per_layer_quantization: bool = True) -> None:
        super().__init__(quantization_formula, quantization_bit, quantization_scheme)
        self.per_layer_quantization = per_layer_quantization

    def forward(self, input: Tensor) -> tuple[Tensor, Tensor]:
        rows = input.detach().reshape(1 if self.per_layer_quantization else input.shape[0], -1)
        return self._parameters_of(rows.amin(1), rows.amax(1))


class MovingAverageMinMaxObserver(_Scheme):
    """(scale, zero_point), (1,), of the moving averages of smallest and largest values that it has been given while training;
    oneflow.nn.MovingAverageMinMaxObserver.

    moving_x = moving_x * momentum + x * (1 - momentum), of the first as it is, until stop_update_after_iters steps.
    """

    def __init__(self, stop_update_after_iters: int = 1, quantization_formula: str = "google", quantization_bit: int = 8,
                 quantization_scheme: str = "symmetric", momentum: float = 0.95) -> None:
        super().__init__(quantization_formula, quantization_bit, quantization_scheme)
        self.momentum, self.stop_update_after_iters = momentum, stop_update_after_iters
        self.register_buffer("moving_max", zeros(1))
        self.register_buffer("moving_min", zeros(1))
        self.register_buffer("current_train_step", zeros(1, dtype=_C.int64))

    def forward(self, input: Tensor, current_train_step: Tensor | None = None) -> tuple[Tensor, Tensor]:
        step = self.current_train_step if current_train_step is None else current_train_step
        if self.training:
            values = input.detach()
            first, goes_on = step == 0, step < self.stop_update_after_iters
            for buffer, now in ((self.moving_max, values.amax()), (self.moving_min, values.amin())):
                averaged = fn.where(first, now, buffer * self.momentum + now * (1 - self.momentum))
                buffer.copy_(fn.where(goes_on, averaged, buffer))
            if current_train_step is None:
                self.current_train_step.add_(1)
        return self._parameters_of(self.moving_min.clone(), self.moving_max.clone())


class Quantization(_Scheme):
    """The integers, as floats, that stand for the values: forward(input, scale, zero_point); oneflow.nn.Quantization."""

    def forward(self, input: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        return self._quantized(input, scale, zero_point)[0]


class FakeQuantization(_Scheme):
    """The values that are left of `input` when it has been integers: forward(input, scale, zero_point). Gradients pass as if nothing
    had been rounded; oneflow.nn.FakeQuantization."""

    def forward(self, input: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        whole, scale, zero_point = self._quantized(input.detach(), scale, zero_point)
        return (whole - zero_point) * scale + (input - input.detach())


class _Exact(threading.local):
    """Whether layers of a thread leave the rounding out."""

    now = False


_exact = _Exact()


@contextlib.contextmanager
def exact_layers() -> Iterator[None]:
    """Layers that round do not: while integers are made of them."""
    before, _exact.now = _exact.now, True
    try:
        yield
    finally:
        _exact.now = before


class Qat:
    """A layer of rounded inputs and weights, whose ranges are observed. Until it has seen an input in training, it rounds none."""

    def _observe(self, weights: MinMaxObserver, inputs: MovingAverageMinMaxObserver, of_weights: FakeQuantization,
                 of_inputs: FakeQuantization) -> None:
        self.weight_observer, self.input_observer = weights, inputs
        self.weight_fake_quantization, self.fake_quantization = of_weights, of_inputs

    def _rounded(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """The input and the weight as integers leave them."""
        if _exact.now:
            return input, self.weight  # type: ignore[attr-defined]
        weight = self.weight_fake_quantization(self.weight, *self.weight_observer(self.weight))  # type: ignore[attr-defined]
        rounded = self.fake_quantization(input, *self.input_observer(input))
        return fn.where(self.input_observer.current_train_step > 0, rounded, input), weight


class _QatConv(Qat):
    def __init__(self, *args: Any, quantization_formula: str = "google", quantization_bit: int = 8,
                 quantization_scheme: str = "symmetric",
                 per_layer_quantization: bool = True, momentum: float = 0.95, stop_update_after_iters: int = 2**31,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scheme = (quantization_formula, quantization_bit, quantization_scheme)
        rounding = FakeQuantization(*scheme)
        self._observe(MinMaxObserver(*scheme, per_layer_quantization), MovingAverageMinMaxObserver(stop_update_after_iters, *scheme, momentum),
                      rounding, rounding)

    def forward(self, input: Tensor) -> Tensor:
        input, weight = self._rounded(input)
        return self._conv_forward(input, weight, self.bias)  # type: ignore[attr-defined]


class QatConv1d(_QatConv, Conv1d):
    """Conv1d for training with quantization: the arguments of Conv1d, and those of the observers by name; oneflow.nn.QatConv1d."""


class QatConv2d(_QatConv, Conv2d):
    """Conv2d for training with quantization: the arguments of Conv2d, and those of the observers by name; oneflow.nn.QatConv2d."""


class QatConv3d(_QatConv, Conv3d):
    """Conv3d for training with quantization: the arguments of Conv3d, and those of the observers by name; oneflow.nn.QatConv3d."""


class QatLinear(Qat, Linear):
    """A Linear as observed() makes it."""

    def forward(self, input: Tensor) -> Tensor:
        input, weight = self._rounded(input)
        return F.linear(input, weight, self.bias)


class _WithZero(MovingAverageMinMaxObserver):
    """Its ranges hold 0, which integers then stand for exactly."""

    def _parameters_of(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return super()._parameters_of(low.clamp(max=0), high.clamp(min=0))


@dataclasses.dataclass(frozen=True)
class QatConfig:
    """How layers are rounded while they are trained; OneFlow's names.

    per_channel_weight_quantization: a weight has a scale for each output channel, or one for all of it.
    symmetric: of inputs; 0 is then the middle of the integers. Weights are always so.
    moving_min_max_momentum: of the averages of an input's smallest and largest values.
    moving_min_max_stop_update_after_iters: so many steps later ranges stay as they are; None: never.
    """

    per_channel_weight_quantization: bool = True
    symmetric: bool = True
    moving_min_max_momentum: float = 0.95
    moving_min_max_stop_update_after_iters: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.moving_min_max_momentum < 1:
            raise ValueError(f"qat_config: moving_min_max_momentum: got {self.moving_min_max_momentum!r}; must be at least 0 and below 1")
        stop = self.moving_min_max_stop_update_after_iters
        if stop is not None and (isinstance(stop, bool) or not isinstance(stop, Integral) or stop < 1):
            raise ValueError(f"qat_config: moving_min_max_stop_update_after_iters: got {stop!r}; must be an int of at least 1, or None")


_OBSERVED: dict[type, type] = {Conv1d: QatConv1d, Conv2d: QatConv2d, Conv3d: QatConv3d, Linear: QatLinear}


def observed(model: Module, config: QatConfig) -> list[str]:
    """Makes convolutions and linear layers of the model, of these classes themselves, layers that round and observe: the objects and
    their parameters stay, and get observers with buffers. Returns their names; those that are so already stay as they are."""
    made = []
    for name, layer in list(model.named_modules()):
        cls = _OBSERVED.get(type(layer))
        if cls is None or layer.weight.dtype != _C.float32:
            continue
        stop = config.moving_min_max_stop_update_after_iters
        inputs = _WithZero(2**31 if stop is None else stop, "google", 8, "symmetric" if config.symmetric else "affine",
                           config.moving_min_max_momentum)
        layer.__class__ = cls
        layer._observe(MinMaxObserver(per_layer_quantization=not config.per_channel_weight_quantization), inputs, FakeQuantization(),
                       FakeQuantization(quantization_scheme=inputs.quantization_scheme))
        for part in layer.children():
            part.train(layer.training).to(layer.weight.device)
        made.append(name)
    return made
