"""Modules that learn the sizes of their inputs from the first one; torch.nn.LazyLinear and others."""

from __future__ import annotations

import itertools
from typing import Any

from sluice import _C
from sluice._tensor import creation
from sluice.nn import init
from sluice.nn.modules.conv import (
    Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, tuple_of)
from sluice.nn.modules.linear import Linear
from sluice.nn.modules.module import Module
from sluice.nn.modules.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from sluice.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy


class LazyModuleMixin:
    """The mixin of lazy modules: before the first forward pass it calls initialize_parameters(*args, **kwargs), which
    materializes what is uninitialized; then the module becomes a `cls_to_become`."""

    cls_to_become: type[Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        return any(is_lazy(t) for t in itertools.chain(self._parameters.values(), self._buffers.values()))

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *_: Any) -> None:
        """A parameter gets the shape that it has in a checkpoint."""
        for name, tensor in itertools.chain(self._parameters.items(), self._buffers.items()):
            given = state_dict.get(prefix + name)
            if is_lazy(tensor) and given is not None and not is_lazy(given):
                tensor.materialize(tuple(given.shape))

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any) -> None:
        if _C.is_tracing() and self.has_uninitialized_params():
            raise RuntimeError(f"{type(self).__name__}: its parameters have no shape yet; call the module once, on an input of the "
                               "shape to come, before the graph is called")
        self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        self._initialize_hook.remove()
        self._load_hook.remove()
        del self._initialize_hook, self._load_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear whose in_features is the width of its first input."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Any) -> None:
        uninitialized = self.has_uninitialized_params()
        self.in_features = input.shape[-1]
        if uninitialized:
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()


class _LazyConvXdMixin(LazyModuleMixin):
    """The base of lazy convolutions: out_channels is known, in_channels is not."""

    def _make_lazy(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Any, *args: Any, **kwargs: Any) -> None:
        n = self.dims
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {type(self).__name__}, but got input of "
                               f"size: {input.shape}")
        uninitialized = self.has_uninitialized_params()
        self.in_channels = input.shape[-n - 1]
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if uninitialized:
            a, b = (self.in_channels, self.out_channels) if self.transposed else (self.out_channels, self.in_channels)
            self.weight.materialize((a, b // self.groups, *tuple_of(self.kernel_size, n)))
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))
            self.reset_parameters()


class _LazyConvN(_LazyConvXdMixin):
    def __init__(self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
                 bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._make_lazy(out_channels, bias, device, dtype)


class _LazyConvTransposeN(_LazyConvXdMixin):
    def __init__(self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                 bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self._make_lazy(out_channels, bias, device, dtype)


class _LazyNormBase(LazyModuleMixin):
    """The base of lazy batch and instance norms: num_features is the first input's dim 1."""

    def __init__(self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
                 device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(0, eps, momentum, False, False)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = creation.tensor(0, dtype=_C.int64, device=device)

    def reset_parameters(self) -> None:
        if self.num_features != 0:
            self.reset_running_stats()
            for tensor, fill in ((self.weight, init.ones_), (self.bias, init.zeros_)):
                if tensor is not None:
                    fill(tensor)

    def initialize_parameters(self, input: Any) -> None:
        uninitialized = self.has_uninitialized_params()
        self.num_features = input.shape[1]
        if uninitialized:
            for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
                if is_lazy(tensor):
                    tensor.materialize((self.num_features,))
            self.reset_parameters()


def _lazy(base: type[Module], mixin: type[Any], size: str) -> type[Any]:
    name = f"Lazy{base.__name__}"
    doc = f"A {base.__name__} that takes {size} from its first input."
    return type(name, (mixin, base), {"cls_to_become": base, "__module__": __name__, "__doc__": doc})


LazyConv1d, LazyConv2d, LazyConv3d = (_lazy(base, _LazyConvN, "in_channels") for base in (Conv1d, Conv2d, Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy(base, _LazyConvTransposeN, "in_channels") for base in (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d))
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    _lazy(base, _LazyNormBase, "num_features") for base in (BatchNorm1d, BatchNorm2d, BatchNorm3d))
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy(base, _LazyNormBase, "num_features") for base in (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d))
