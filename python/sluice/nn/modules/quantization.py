"""Training for quantized inference, by OneFlow's names: observers of ranges, and values rounded as integers would be."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import zeros, zeros_like
from sluice.nn.modules.conv import Conv1d, Conv2d, Conv3d
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


class _QatConv:
    """A convolution of rounded inputs and weights, whose ranges are observed."""

    def __init__(self, *args: Any, quantization_formula: str = "google", quantization_bit: int = 8,
                 quantization_scheme: str = "symmetric",
                 per_layer_quantization: bool = True, momentum: float = 0.95, stop_update_after_iters: int = 2**31,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scheme = (quantization_formula, quantization_bit, quantization_scheme)
        self.weight_observer = MinMaxObserver(*scheme, per_layer_quantization)
        self.input_observer = MovingAverageMinMaxObserver(stop_update_after_iters, *scheme, momentum)
        self.fake_quantization = FakeQuantization(*scheme)

    def forward(self, input: Tensor) -> Tensor:
        weight = self.fake_quantization(self.weight, *self.weight_observer(self.weight))  # type: ignore[attr-defined]
        input = self.fake_quantization(input, *self.input_observer(input))
        return self._conv_forward(input, weight, self.bias)  # type: ignore[attr-defined]


class QatConv1d(_QatConv, Conv1d):
    """Conv1d for training with quantization: the arguments of Conv1d, and those of the observers by name; oneflow.nn.QatConv1d."""


class QatConv2d(_QatConv, Conv2d):
    """Conv2d for training with quantization: the arguments of Conv2d, and those of the observers by name; oneflow.nn.QatConv2d."""


class QatConv3d(_QatConv, Conv3d):
    """Conv3d for training with quantization: the arguments of Conv3d, and those of the observers by name; oneflow.nn.QatConv3d."""
