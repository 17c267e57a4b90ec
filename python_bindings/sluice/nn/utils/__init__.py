"""Gradient clipping and flat views of parameters."""

from __future__ import annotations

from typing import Any

import sluice
from sluice._C import Tensor


def _list(parameters: Any) -> Any:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def get_total_norm(tensors: Any, norm_type: float = 2.0) -> Any:
    """The norm of all tensors together."""
    tensors = _list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return sluice.tensor(0.0)
    if norm_type == float("inf"):
        return sluice.stack([t.detach().abs().max() for t in tensors]).max()
    if norm_type == 2.0:
        return sluice.stack([(t.detach() * t.detach()).sum() for t in tensors]).sum().sqrt()
    return sluice.stack([t.detach().abs().pow(norm_type).sum() for t in tensors]).sum().pow(1.0 / norm_type)


def clip_grad_norm_(parameters: Any, max_norm: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Any:
    """Scales the gradients so that their total norm is at most max_norm; returns the norm before. Works in build()."""
    grads = [p.grad for p in _list(parameters) if p.grad is not None]
    with sluice.no_grad():
        total = get_total_norm(grads, norm_type)
        if error_if_nonfinite and not bool(total.isfinite()):
            raise RuntimeError(f"clip_grad_norm_: the total norm of order {norm_type} is not finite")
        factor = (float(max_norm) / (total + 1e-6)).clamp(max=1.0)
        for g in grads:
            g.mul_(factor)
    return total


def clip_grad_value_(parameters: Any, clip_value: Any) -> None:
    """Clamps every gradient to [-clip_value, clip_value]."""
    with sluice.no_grad():
        for p in _list(parameters):
            if p.grad is not None:
                p.grad.clamp_(-float(clip_value), float(clip_value))


def parameters_to_vector(parameters: Any) -> Any:
    return sluice.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Any, parameters: Any) -> None:
    start = 0
    with sluice.no_grad():
        for p in parameters:
            p.copy_(vec[start:start + p.numel()].reshape(p.shape))
            start += p.numel()
