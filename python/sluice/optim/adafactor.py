"""torch.optim.Adafactor (Shazeer and Stern 2018)."""

from __future__ import annotations

import math
from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import zeros, zeros_like
from sluice.optim._math import norm, precise
from sluice.optim._numbers import is_zero, like
from sluice.optim.optimizer import Optimizer

_EPSILON = {_C.float64: 2.0 ** -52, _C.float32: 2.0 ** -23, _C.bfloat16: 2.0 ** -7, _C.float16: 2.0 ** -10}


class Adafactor(Optimizer):
    """Adam that keeps the second moments of a matrix as those of its rows and of its columns.

    eps: what squared gradients are at least (None: the dtype's), and what the parameter's scale is at least.
    """

    _takes_complex = False

    def __init__(self, params: Any, lr: Any = 1e-2, beta2_decay: float = -0.8, eps: Any = (None, 1e-3), d: float = 1.0,
                 weight_decay: float = 0.0, *, foreach: Any = None, maximize: bool = False) -> None:
        super().__init__(params, dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, foreach=foreach,
                                      maximize=maximize))

    def _check(self, group: Any) -> None:
        super()._check(group)
        if group["beta2_decay"] > 0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {group['beta2_decay']}")
        for i, (eps, what) in enumerate(zip(group["eps"], ("epsilon1 should be either None or", "epsilon2 should be"))):
            if eps is not None and eps < 0:
                raise ValueError(f"{what} >= 0 but is: {group['eps'][i]}")
        if group["d"] < 1:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {group['d']}")

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        if p.ndim < 2:
            self._zeros(state, p, "variance")
        elif "row_var" not in state:
            state["row_var"] = zeros((*p.shape[:-1], 1), dtype=p.dtype, device=p._device)
            state["col_var"] = zeros((*p.shape[:-2], 1, p.shape[-1]), dtype=p.dtype, device=p._device)

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        step, lr, (floor, least_scale) = state["step"] + 1, group["lr"], group["eps"]
        floor = _EPSILON[p.dtype] if floor is None else like(floor, p)
        t, root = precise(step), math.sqrt(max(p.numel(), 1))
        share, changed = like(t ** group["beta2_decay"], p), {"step": step}
        grad = -grad if group["maximize"] else grad
        rate = like(fn.minimum(lr, t ** -0.5), p) * _at_least(norm(p) / root, like(least_scale, p))
        if not is_zero(group["weight_decay"]):
            p = p * like(1 - lr * group["weight_decay"], p)
        if p.ndim < 2:
            variance = changed["variance"] = state["variance"] + (grad * grad - state["variance"]) * share
        else:
            square = grad * grad
            rows, columns = (old + (square.mean(dim=axis, keepdim=True) - old) * share
                             for old, axis in ((state["row_var"], -1), (state["col_var"], -2)))
            changed.update(row_var=rows, col_var=columns)
            variance = rows * columns / rows.mean(dim=-2, keepdim=True).clamp(min=floor)
        delta = grad * variance.clamp(min=floor * floor).rsqrt()
        clipped = _at_least(norm(delta) / (like(group["d"], p) * root), 1.0)
        return p - delta * (rate / clipped), changed


def _at_least(x: Tensor, least: Any) -> Tensor:
    """The larger one; `least` also where `x` is not a number, so that one bad gradient spoils itself alone."""
    return fn.where(x > least, x, least + zeros_like(x))
