"""torch.ops: what packages call there by torch's names, and torchvision's own ops."""

from __future__ import annotations

import functools
import math
import os
from typing import Any

from sluice import _C, library
from sluice._C import fn
from sluice._tensor import detection, regions
from sluice.mock_torch._private.made import same


def _roi_align(input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int,
               aligned: bool) -> Any:
    return detection.roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned)


def _deform_conv2d(input: Any, weight: Any, offset: Any, mask: Any, bias: Any, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
                   dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool) -> Any:
    return detection.deform_conv2d(input, offset, weight, bias, (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w),
                                   mask if use_mask else None)


class _Op:
    """An op of torch's or torchvision's by its name: Sluice's function, or a refusal. Its overloads are one."""

    def __init__(self, name: str, function: Any, instead: str) -> None:
        self.name, self.function, self.instead = name, function, instead

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self

    def overloads(self) -> list[str]:
        return ["default"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function is None:
            raise NotImplementedError(f"torch.ops.{self.name}: Sluice has no such op; use {self.instead}")
        return self.function(*args, **kwargs)


class _Namespace:
    """The ops of a namespace, which Sluice computes, with their gradients."""

    def __init__(self, name: str, find: Any, instead: str) -> None:
        self._name, self._find, self._instead = name, find, instead

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        op = _Op(f"{self._name}.{name}", self._find(name), self._instead)
        setattr(self, name, op)
        return op


_KNOWN = {"nms": detection.nms, "roi_align": _roi_align, "deform_conv2d": _deform_conv2d, "roi_pool": regions.roi_pool,
          "ps_roi_pool": regions.ps_roi_pool, "ps_roi_align": regions.ps_roi_align, "_cuda_version": lambda: -1}


class _Unknown:
    """A namespace that nothing has been registered in: as in torch, it is there, and has no ops."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, op: str) -> Any:
        found = getattr(getattr(_C.ops, self._name, None), op, None)  # of a namespace that has come up since
        if found is None:
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{op}'")
        return found


def _is_ours(op: Any) -> bool:
    """Whether what torchvision registers for an op has no use, since the op is Sluice's."""
    return isinstance(op, _Op) or isinstance(op, str) and op.startswith("torchvision::")


class _Library(library.Library):
    """A library of ops; of torchvision's nothing is registered."""

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        return schema.partition("(")[0] if self.ns == "torchvision" else super().define(schema, alias_analysis, tags=tags)

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        if self.ns != "torchvision":
            super().impl(op_name, fn, dispatch_key, **options)


class _Ops:
    """torch.ops: libraries of ops that are built for torch cannot be loaded; ops of Sluice's are there."""

    torchvision = _Namespace("torchvision", _KNOWN.get, "roi_align or nms")
    aten = _Namespace("aten", lambda name: getattr(_C.fn, name, None), "the function of torch")

    @staticmethod
    def load_library(path: str) -> None:
        if os.path.basename(os.path.dirname(path)) == "torchvision" and os.path.basename(path).startswith("_C"):
            return  # the ops of that library are above
        raise OSError(f"torch.ops.load_library: {path} is built for torch; Sluice takes none of its ops (see docs/embedding.md "
                      "for Sluice's own)")

    def __getattr__(self, name: str) -> Any:
        return getattr(_C.ops, name, _Unknown(name))


def _register_fake(op: Any, func: Any = None, **options: Any) -> Any:
    """Leaves a mark for an op that is not here, as torch does for a library that could not be loaded."""
    try:
        if not _is_ours(op):
            return library.register_fake(op, func, **options)
    except (AttributeError, RuntimeError, ValueError):
        pass
    return same if func is None else func


def _register_autograd(op: Any, backward: Any, **options: Any) -> None:
    if not _is_ours(op):
        library.register_autograd(op, backward, **options)


def _of_sizes(name: str) -> Any:
    """The function, which takes numbers, too, while a graph is traced: torch's traces have tensors for sizes, where here are numbers."""
    of_tensors, of_numbers = getattr(fn, name), getattr(math, name)

    @functools.wraps(of_tensors)
    def either(input: Any, *args: Any, **kwargs: Any) -> Any:
        is_size = isinstance(input, (int, float)) and _C.is_tracing()
        return of_numbers(input) if is_size else of_tensors(input, *args, **kwargs)

    return either


def _softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """The gradient of a softmax from its result, which functions with a backward of their own ask for."""
    of_result = grad_output * output
    return (of_result - output * of_result.sum(dim, keepdim=True)).to(input_dtype)


def _log_softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


MEMBERS = {"torch": {"ops": _Ops(), "_softmax_backward_data": _softmax_backward_data, "_log_softmax_backward_data": _log_softmax_backward_data,
                     **{name: _of_sizes(name) for name in ("ceil", "floor")}},
           "torch.library": {"register_fake": _register_fake, "register_autograd": _register_autograd, "Library": _Library}}
