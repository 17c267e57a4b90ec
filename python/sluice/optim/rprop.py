"""torch.optim.Rprop (Riedmiller and Braun 1993) and ASGD (Polyak and Juditsky 1992)."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import zeros_like
from sluice.optim._math import decayed, precise
from sluice.optim._numbers import like
from sluice.optim.optimizer import Optimizer


class Rprop(Optimizer):
    """Steps by the signs of gradients alone, which grow while a sign stays and shrink when it changes."""

    def __init__(self, params: Any, lr: Any = 1e-2, etas: Any = (0.5, 1.2), step_sizes: Any = (1e-6, 50), *,
                 capturable: bool = False, foreach: Any = None, maximize: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize,
                                      differentiable=differentiable, capturable=capturable))

    def _check(self, group: Any) -> None:
        super()._check(group)
        if not 0.0 < group["etas"][0] < 1.0 < group["etas"][1]:
            raise ValueError(f"Invalid eta values: {group['etas'][0]}, {group['etas'][1]}")

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._zeros(state, p, "prev")
        self._filled(state, p, "step_size", float(group["lr"]))

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        (shrink, grow), (least, most) = ([like(x, p) for x in group[name]] for name in ("etas", "step_sizes"))
        grad = -grad if group["maximize"] else grad
        agreement = grad * state["prev"]
        size, none = state["step_size"], zeros_like(grad)
        size = fn.where(agreement > 0, size * grow, fn.where(agreement < 0, size * shrink, size)).clamp(least, most)
        grad = fn.where(agreement < 0, none, grad)
        return p - grad.sign() * size, {"step": state["step"] + 1, "prev": grad, "step_size": size}


class ASGD(Optimizer):
    """Averaged stochastic gradient descent; the average is in the state, as `ax`."""

    def __init__(self, params: Any, lr: Any = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
                 weight_decay: float = 0, foreach: Any = None, maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, capturable=capturable))

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._scalar(state, "eta", float(group["lr"]))
        self._scalar(state, "mu", 1.0)
        self._zeros(state, p, "ax")

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        step, lr, lambd, eta = state["step"] + 1, group["lr"], group["lambd"], precise(state["eta"])
        grad, t = decayed(group, p, grad), precise(step)
        p = p * like(1 - lambd * eta, p) - grad * like(eta, p)
        ax = fn.where(state["mu"] == 1, p, state["ax"] + (p - state["ax"]) * like(state["mu"], p))
        eta = lr / (1 + lambd * lr * t) ** group["alpha"]
        mu = 1 / (t - group["t0"]).clamp(min=1.0)
        return p, {"step": step, "eta": _float(eta), "mu": _float(mu), "ax": ax}


def _float(x: Tensor) -> Tensor:
    return x.to(_C.float32)
