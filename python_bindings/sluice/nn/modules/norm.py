"""Normalisation layers."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
import sluice
from sluice.nn import functional as F
from sluice.nn import init
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter


class _BatchNorm(Module):
    ranks = ()

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name in ("weight", "bias"):
            self.register_parameter(name, Parameter(sluice.empty(num_features, device=device, dtype=dtype)) if affine else None)
        stats = track_running_stats
        self.register_buffer("running_mean", sluice.zeros(num_features, device=device, dtype=dtype) if stats else None)
        self.register_buffer("running_var", sluice.ones(num_features, device=device, dtype=dtype) if stats else None)
        self.register_buffer("num_batches_tracked", sluice.tensor(0, dtype=sluice.int64) if stats else None)
        self.reset_parameters()

    _version = 2  # since state_dict() has num_batches_tracked

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *args: Any) -> None:
        version, key = local_metadata.get("version"), f"{prefix}num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            count = self.num_batches_tracked
            state_dict[key] = sluice.tensor(0, dtype=sluice.int64) if count is None else count
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    def reset_running_stats(self) -> None:
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def forward(self, input: Any) -> Tensor:
        if input.dim() not in self.ranks:
            expected = " or ".join(f"{r}D" for r in self.ranks)
            raise ValueError(f"{self._get_name()}: input is {input.dim()}D {tuple(input.shape)}; expected {expected}")
        momentum = self.momentum
        if self.training and self.track_running_stats:
            with sluice.no_grad():
                self.num_batches_tracked.add_(1)
            if momentum is None:  # cumulative average
                momentum = 1.0 / float(self.num_batches_tracked)
        use_batch = self.training or not self.track_running_stats
        return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, use_batch,
                            0.0 if momentum is None else momentum, self.eps)

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"track_running_stats={self.track_running_stats}")


class BatchNorm1d(_BatchNorm):
    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    ranks = (5,)


class LayerNorm(Module):
    """Normalises over the last dims `normalized_shape`."""

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            self.register_parameter(
                name, Parameter(sluice.empty(*self.normalized_shape, device=device, dtype=dtype)) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Any) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalises over groups of channels and all positions."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_channels must be divisible by num_groups: got {num_channels} and {num_groups}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        for name in ("weight", "bias"):
            self.register_parameter(name, Parameter(sluice.empty(num_channels, device=device, dtype=dtype)) if affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def forward(self, input: Any) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
