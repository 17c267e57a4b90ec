"""Normalisation layers."""

from __future__ import annotations

import sys
from numbers import Integral
from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import empty, ones, tensor, zeros
from sluice._base.grad_mode import no_grad
from sluice.nn import functional as F
from sluice.nn import init
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter


class _NormBase(Module):
    """Batch and instance normalisation: parameters and running statistics of one entry per feature."""

    ranks: tuple[int, ...] = ()

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Any = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None, bias: bool = True) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(
                name, Parameter(empty(num_features, device=device, dtype=dtype)) if wanted else None)
        stats = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype) if stats else None)
        self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype) if stats else None)
        self.register_buffer("num_batches_tracked", tensor(0, dtype=_C.int64, device=device) if stats else None)
        self.reset_parameters()

    _version = 2  # since state_dict() has num_batches_tracked

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *args: Any) -> None:
        version, key = local_metadata.get("version"), f"{prefix}num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            count = self.num_batches_tracked
            state_dict[key] = tensor(0, dtype=_C.int64) if count is None else count
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    def reset_running_stats(self) -> None:
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() not in self.ranks:
            expected = " or ".join(f"{r}D" for r in self.ranks)
            raise ValueError(f"{self._get_name()}: expected {expected} input (got {input.dim()}D input {tuple(input.shape)})")

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}")


class _BatchNorm(_NormBase):
    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Any = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Any) -> Tensor:
        self._check_input_dim(input)
        momentum = self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.add_(1)
            if momentum is None:  # cumulative average
                momentum = 1.0 / float(self.num_batches_tracked)
        use_batch = self.training or self.running_mean is None
        kept = not self.training or self.track_running_stats
        return F.batch_norm(input, self.running_mean if kept else None, self.running_var if kept else None, self.weight,
                            self.bias, use_batch, 0.0 if momentum is None else momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of one process, of (N, C) or more dims. Several processes are refused while training."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Any = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None, *,
                 bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        distributed = sys.modules.get("sluice.distributed")
        if self.training and distributed is not None and distributed.is_initialized() and distributed.get_world_size() > 1:
            raise NotImplementedError("SyncBatchNorm: statistics over several processes are not supported; use global tensors "
                                      "split over the batch with BatchNorm, whose statistics are those of the whole batch")

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """The module with a SyncBatchNorm, of the same tensors, in the place of each BatchNorm."""
        made = module
        if isinstance(module, _BatchNorm):
            made = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                       process_group, bias=module.bias is not None)
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                setattr(made, name, getattr(module, name))
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


class _InstanceNorm(_NormBase):
    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Any = 0.1, affine: bool = False,
                 track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Any) -> Tensor:
        self._check_input_dim(input)
        batched = input.dim() == self.ranks[1]
        x = input if batched else input.unsqueeze(0)
        if x.shape[1] != self.num_features and self.affine:
            raise ValueError(f"expected input's size at dim=1 to match num_features ({self.num_features}), but got: "
                             f"{x.shape[1]}.")
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                            self.training or not self.track_running_stats, 0.0 if self.momentum is None else self.momentum,
                            self.eps)
        return y if batched else y.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    ranks = (4, 5)


class LayerNorm(Module):
    """Normalises over the last dims `normalized_shape`."""

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.normalized_shape = (int(normalized_shape),) if isinstance(normalized_shape, Integral) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            self.register_parameter(
                name, Parameter(empty(*self.normalized_shape, device=device, dtype=dtype)) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Any) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
                f"bias={self.bias is not None}")


class RMSNorm(Module):
    """Divides by the root of the mean square over the last dims `normalized_shape`."""

    def __init__(self, normalized_shape: Any, eps: Any = None, elementwise_affine: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        self.normalized_shape = (int(normalized_shape),) if isinstance(normalized_shape, Integral) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        shape = self.normalized_shape
        self.register_parameter(
            "weight", Parameter(empty(*shape, device=device, dtype=dtype)) if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Any) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSLayerNorm(Module):
    """T5's: RMSNorm over the last dim, of hidden_size. OneFlow's."""

    def __init__(self, hidden_size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = Parameter(ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states: Any) -> Tensor:
        return F.rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)


class LocalResponseNorm(Module):
    """Divides by a power of the mean square over neighbouring channels."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Any) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """LocalResponseNorm as Lua's Torch had it: windows have 2 * ((size - 1) // 2) + 1 channels, and their sums are divided by size.

    As in torch, the first channel stays in the sum of all windows that come after its own; the gradient here knows of it.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Any) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        half = (self.size - 1) // 2
        squares = input.square()
        sums = F.pad(squares, (0, 0, 0, 0, half, half)).unfold(1, 2 * half + 1, 1).sum(-1)
        sums = fn.cat([sums[:, :half + 1], sums[:, half + 1:] + squares[:, :1]], 1)
        return input * (self.k + self.alpha / self.size * sums) ** -self.beta

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class GroupNorm(Module):
    """Normalises over groups of channels and all positions."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
                 dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_channels must be divisible by num_groups: got {num_channels} and {num_groups}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(
                name, Parameter(empty(num_channels, device=device, dtype=dtype)) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Any) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"
