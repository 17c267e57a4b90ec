"""Gradient clipping and flat views of parameters."""

from __future__ import annotations

from typing import Any

import sluice
from sluice.nn.utils.clip_grad import (
    clip_grad_norm as clip_grad_norm,
    clip_grad_norm_ as clip_grad_norm_,
    clip_grad_value_ as clip_grad_value_,
    clip_grads_with_norm_ as clip_grads_with_norm_,
    get_total_norm as get_total_norm,
)

def parameters_to_vector(parameters: Any) -> Any:
    return sluice.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Any, parameters: Any) -> None:
    start = 0
    with sluice.no_grad():
        for p in parameters:
            p.copy_(vec[start:start + p.numel()].reshape(p.shape))
            start += p.numel()
