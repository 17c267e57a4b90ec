"""Clipping of gradients: torch.nn.utils.clip_grad. Nothing is read back from a device, and all of it works in build()."""

from __future__ import annotations

import types
import warnings
from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import tensor
from sluice._base.grad_mode import no_grad

_INFINITY = float("inf")


def listed(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters: Any, what: str) -> list[Any]:
    exhausted = isinstance(parameters, types.GeneratorType)
    parameters = listed(parameters)
    if exhausted and not parameters:
        warnings.warn(f"`parameters` is an empty generator, no gradient clipping will occur. {what}: was it used before?",
                      stacklevel=3)
    return [p.grad for p in parameters if p.grad is not None]


def _norm(x: Any, order: float) -> Any:
    x = x.detach()
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"get_total_norm: expected floating point tensors, got {x.dtype}")
    if order == 2.0:
        return (x * x).sum().sqrt()
    if order == _INFINITY:
        return x.abs().max() if x.numel() else x.sum()
    if order == -_INFINITY:
        return x.abs().min()
    if order == 0.0:
        return (x != 0).sum().to(x.dtype)
    return x.abs().sum() if order == 1.0 else x.abs().pow(order).sum().pow(1.0 / order)


def get_total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: Any = None) -> Any:
    """The norm of all tensors together, a scalar tensor. foreach: as torch's, which selects an implementation there."""
    tensors, order = listed(tensors), float(norm_type)
    if not tensors:
        return tensor(0.0)
    with no_grad():
        norms = [_norm(t, order) for t in tensors]
        dtype = _C.float64 if any(n.dtype is _C.float64 for n in norms) else norms[0].dtype
        if any(n.dtype is not dtype for n in norms):
            dtype = _C.float64 if dtype is _C.float64 else _C.float32
        total = _norm(fn.stack([n.to(dtype) for n in norms]), order)
        return _finite(total, order) if error_if_nonfinite else total


def _finite(total: Any, order: float) -> Any:
    message = (f"The total norm of order {order} for gradients from `parameters` is non-finite, so it cannot be clipped. To "
               "disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`")
    if not _C.touches_graph(total):
        if not bool(total.isfinite()):
            raise RuntimeError(message)
        return total

    def check_norm(value: Any) -> Any:
        import numpy as np

        if not np.isfinite(value):
            raise RuntimeError(message)
        return value

    from sluice._tensor.host_function import host_function

    return host_function(check_norm, total, out=((), total.dtype))  # the step fails before anything is written


def clip_grads_with_norm_(parameters: Any, max_norm: Any, total_norm: Any, foreach: Any = None) -> None:
    """Scales the gradients by max_norm / (total_norm + 1e-6), where that is less than 1."""
    grads = _grads(parameters, "clip_grads_with_norm_")
    if not grads:
        return
    with no_grad():
        limit = max_norm.to(total_norm.dtype) if isinstance(max_norm, Tensor) else float(max_norm)
        factor = (limit / (total_norm + 1e-6)).clamp(max=1.0)
        for g in grads:
            g.mul_(factor.to(g.dtype))


def clip_grad_norm_(parameters: Any, max_norm: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: Any = None) -> Any:
    """Scales the gradients so that their total norm is at most max_norm; returns the norm before. Works in build()."""
    exhausted = isinstance(parameters, types.GeneratorType)
    parameters = listed(parameters)
    if exhausted and not parameters:
        _grads((_ for _ in ()), "clip_grad_norm_")
    total = get_total_norm([p.grad for p in parameters if p.grad is not None], norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(parameters: Any, max_norm: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: Any = None) -> Any:
    """torch's former name of clip_grad_norm_."""
    warnings.warn("torch.nn.utils.clip_grad_norm is now deprecated in favor of torch.nn.utils.clip_grad_norm_.", FutureWarning,
                  stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Any, clip_value: Any, foreach: Any = None) -> None:
    """Clamps every gradient to [-clip_value, clip_value]."""
    with no_grad():
        for g in _grads(parameters, "clip_grad_value_"):
            g.clamp_(-float(clip_value), float(clip_value))
