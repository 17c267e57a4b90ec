"""torch.optim.Muon (Jordan et al. 2024): momentum, made orthogonal."""

from __future__ import annotations

import math
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice.optim._math import mean
from sluice.optim._numbers import is_zero, like
from sluice.optim.optimizer import Optimizer


def _rounded(x: Tensor) -> Tensor:
    """As bfloat16 has it."""
    return x.to(_C.bfloat16).float()


def _orthogonal(x: Tensor, coefficients: Any, eps: float, steps: int) -> Tensor:
    """The result of Newton's and Schulz's iteration for `x`: singular values near 1. Its values are rounded to bfloat16."""
    a, b, c = (float(k) for k in coefficients)
    dtype, tall = x.dtype, x.shape[0] > x.shape[1]
    x = _rounded(x.T if tall else x)
    x = _rounded(x / _rounded((x * x).sum().sqrt()).clamp(min=eps))
    for _ in range(steps):
        gram = _rounded(x @ x.T)
        x = _rounded(a * x + _rounded(b * gram + c * (gram @ gram)) @ x)
    return (x.T if tall else x).to(dtype)


class Muon(Optimizer):
    """For the matrices of hidden layers; give other parameters to AdamW.

    adjust_lr_fn: "original" (None) or "match_rms_adamw", what a rate is for a matrix of other sides.
    """

    structural = ("ns_coefficients", "ns_steps", "eps")
    _takes_complex = False

    def __init__(self, params: Any, lr: Any = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients: Any = (3.4445, -4.775, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
                 adjust_lr_fn: Any = None) -> None:
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
                                      ns_coefficients=ns_coefficients, eps=eps, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn))

    def _check(self, group: Any) -> None:
        super()._check(group)
        if group["momentum"] < 0:
            raise ValueError(f"momentum should be >= 0 but is: {group['momentum']}")
        if group["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {group['adjust_lr_fn']} is not supported")
        if len(group["ns_coefficients"]) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values.")
        if group["ns_steps"] >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        for p in group["params"]:
            if p.ndim != 2:
                raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}")

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._zeros(state, p, "momentum_buffer")

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        buffer = mean(state["momentum_buffer"], grad, group["momentum"])
        delta = mean(grad, buffer, 1 - group["momentum"]) if group["nesterov"] else buffer
        delta = _orthogonal(delta, group["ns_coefficients"], float(group["eps"]), group["ns_steps"])
        rows, columns = p.shape
        factor = math.sqrt(max(1.0, rows / columns))
        if group["adjust_lr_fn"] == "match_rms_adamw":
            factor = 0.2 * math.sqrt(max(rows, columns))
        if not is_zero(group["weight_decay"]):
            p = p * like(1 - group["lr"] * group["weight_decay"], p)
        return p - delta * like(group["lr"] * factor, p), {"momentum_buffer": buffer}
