"""Convolutions whose weights lie in another order: torch.nn.utils.memory_format."""

from __future__ import annotations

from typing import Any, TypeVar

from sluice.nn.modules import conv

_M = TypeVar("_M")


def _convert(module: Any, memory_format: Any, names: tuple) -> Any:
    kinds = tuple(getattr(conv, name) for name in names)
    for part in module.modules():
        if isinstance(part, kinds):
            part.weight.data = part.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: _M, memory_format: Any) -> _M:
    """The module, with the weights of its Conv2d and ConvTranspose2d in that memory format."""
    return _convert(module, memory_format, ("Conv2d", "ConvTranspose2d"))


def convert_conv3d_weight_memory_format(module: _M, memory_format: Any) -> _M:
    """The module, with the weights of its Conv3d and ConvTranspose3d in that memory format."""
    return _convert(module, memory_format, ("Conv3d", "ConvTranspose3d"))
