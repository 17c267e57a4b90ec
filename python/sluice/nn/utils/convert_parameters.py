"""Parameters as one vector, and back."""

from __future__ import annotations

from typing import Any

from sluice._C import fn, Tensor
from sluice._base.grad_mode import no_grad


def _same_device(tensors: list[Any]) -> None:
    if len({str(t.device) for t in tensors}) > 1:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")


def parameters_to_vector(parameters: Any) -> Tensor:
    """The parameters one after the other as a vector. Differentiable."""
    parameters = list(parameters)
    _same_device(parameters)
    return fn.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Any) -> None:
    """Copies slices of `vec` into the parameters."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected sluice.Tensor, but got: {type(vec).__name__}")
    parameters = list(parameters)
    _same_device(parameters)
    start = 0
    with no_grad():
        for p in parameters:
            part = vec[start:start + p.numel()]
            if part.numel() != p.numel():
                raise RuntimeError(f"shape '{list(p.shape)}' is invalid for input of size {part.numel()}")
            p.copy_(part.reshape(p.shape))
            start += p.numel()
