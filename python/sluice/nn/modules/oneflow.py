"""Modules that OneFlow has and torch has not."""

from __future__ import annotations

import math
from typing import Any, Sequence

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import arange, empty, rand, tensor
from sluice.nn import functional as F
from sluice.nn import init
from sluice.nn.modules.module import Module
from sluice.nn.modules.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from sluice.nn.parameter import Parameter


class _WithAddend:
    """relu(batch_norm(x) + addend); the compiler of graphs makes what it can of it one kernel."""

    def forward(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        y = super().forward(x)  # type: ignore[misc]
        return F.relu(y if addend is None else y + addend)


class FusedBatchNorm1d(_WithAddend, BatchNorm1d):
    """relu(BatchNorm1d(x) + addend); oneflow.nn.FusedBatchNorm1d."""


class FusedBatchNorm2d(_WithAddend, BatchNorm2d):
    """relu(BatchNorm2d(x) + addend); oneflow.nn.FusedBatchNorm2d."""


class FusedBatchNorm3d(_WithAddend, BatchNorm3d):
    """relu(BatchNorm3d(x) + addend); oneflow.nn.FusedBatchNorm3d."""


class FusedMLP(Module):
    """Linear layers with relu and dropout between them, whose parameters are weight_0, bias_0, weight_1, ...; oneflow.nn.FusedMLP.

    hidden_dropout_rate: of each hidden layer, by default 0. skip_final_activation: the last layer has no relu.
    """

    def __init__(self, in_features: int, hidden_features: Sequence[int], out_features: int, hidden_dropout_rate: Any = None,
                 out_dropout_rate: float = 0.0, skip_final_activation: bool = False) -> None:
        super().__init__()
        sizes = [in_features, *hidden_features, out_features]
        rates = [0.0] * len(hidden_features) if hidden_dropout_rate is None else list(hidden_dropout_rate)
        if len(rates) != len(hidden_features):
            raise ValueError(f"FusedMLP: {len(rates)} hidden dropout rates for {len(hidden_features)} hidden layers; must be "
                             "one each")
        self.in_features, self.hidden_features, self.out_features = in_features, list(hidden_features), out_features
        self.skip_final_activation, self.dropout_rate_list = skip_final_activation, [*rates, out_dropout_rate]
        for i, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:])):
            bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
            self.register_parameter(f"weight_{i}", Parameter(init.kaiming_uniform_(empty(fan_out, fan_in),
                                                                                   a=math.sqrt(5))))
            self.register_parameter(f"bias_{i}", Parameter(empty(fan_out).uniform_(-bound, bound)))

    def weights(self) -> list[Any]:
        return [getattr(self, f"weight_{i}") for i in range(len(self.dropout_rate_list))]

    def biases(self) -> list[Any]:
        return [getattr(self, f"bias_{i}") for i in range(len(self.dropout_rate_list))]

    def forward(self, x: Tensor) -> Tensor:
        last = len(self.dropout_rate_list) - 1
        for i, (weight, bias, rate) in enumerate(zip(self.weights(), self.biases(), self.dropout_rate_list)):
            x = F.linear(x, weight, bias)
            if i != last or not self.skip_final_activation:
                x = F.relu(x)
            x = F.dropout(x, rate, self.training)
        return x

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, hidden_features={self.hidden_features}, out_features={self.out_features}, "
                f"skip_final_activation={self.skip_final_activation}")


class CombinedMarginLoss(Module):
    """Cosines (N, classes) with that of each row's label made cos(m1 angle + m2) - m3, as ArcFace and others do before their loss;
    oneflow.nn.CombinedMarginLoss."""

    def __init__(self, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> None:
        super().__init__()
        self.m1, self.m2, self.m3 = m1, m2, m3

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        own = arange(x.shape[1]) == label.to(_C.int64).unsqueeze(1)
        if self.m1 == 1.0 and self.m2 == 0.0:
            return fn.where(own, x - self.m3, x)
        # The slope of acos, infinite at 1, must not come in where it is not asked for.
        angle = fn.where(own, x, 0.0).acos()
        return fn.where(own, (angle * self.m1 + self.m2).cos() - self.m3, x)


class CoinFlip(Module):
    """Draws batch_size numbers, each a 1 with that probability, else 0, int8: which images to mirror; oneflow.nn.CoinFlip."""

    def __init__(self, batch_size: int = 1, random_seed: int | None = None, probability: float = 0.5) -> None:
        super().__init__()
        if not 0 <= probability <= 1:
            raise ValueError(f"CoinFlip: probability is {probability}; must be from 0 to 1")
        self.batch_size, self.probability = batch_size, probability
        self._generator = None if random_seed is None else _C.Generator().manual_seed(random_seed)

    def forward(self) -> Tensor:
        return (rand(self.batch_size, generator=self._generator) < self.probability).to(_C.int8)


class CropMirrorNormalize(Module):
    """Images (N, H, W, C), uint8, cut to (crop_h, crop_w), mirrored where `mirror` (N,) is not 0, and (x - mean) / std of each
    channel; as (N, C, H, W) or (N, H, W, C). oneflow.nn.CropMirrorNormalize.

    crop_pos_y, crop_pos_x: where the cut lies, from 0 (top, left) to 1; a crop size of 0 leaves the size.
    """

    def __init__(self, color_space: str = "BGR", output_layout: str = "NCHW", crop_h: int = 0, crop_w: int = 0,
                 crop_pos_y: float = 0.5,
                 crop_pos_x: float = 0.5, mean: Sequence[float] = (0.0,), std: Sequence[float] = (1.0,),
                 output_dtype: Any = None) -> None:
        super().__init__()
        if output_layout not in ("NCHW", "NHWC"):
            raise ValueError(f"CropMirrorNormalize: output_layout is {output_layout!r}; must be 'NCHW' or 'NHWC'")
        self.color_space, self.output_layout, self.crop = color_space, output_layout, (crop_h, crop_w)
        self.position, self.mean, self.std = (crop_pos_y, crop_pos_x), list(mean), list(std)
        self.output_dtype = output_dtype or _C.float32

    def forward(self, input: Tensor, mirror: Tensor | None = None) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CropMirrorNormalize: input has {input.dim()} dims; must be (N, H, W, C)")
        x = input
        for d, (size, position) in enumerate(zip(self.crop, self.position), 1):
            if size:
                if size > x.shape[d]:
                    raise ValueError(f"CropMirrorNormalize: crop of {size} along a dim of {x.shape[d]}; must not be larger")
                x = x.narrow(d, int((x.shape[d] - size) * position), size)
        if mirror is not None:
            x = fn.where(mirror.reshape(-1, 1, 1, 1) != 0, x.flip(2), x)
        dtype = self.output_dtype
        x = (x.to(dtype) - tensor(self.mean, dtype=dtype)) / tensor(self.std, dtype=dtype)
        return x.permute(0, 3, 1, 2).contiguous() if self.output_layout == "NCHW" else x
