"""torch.optim.Adagrad (Duchi et al. 2011), Adadelta (Zeiler 2012), RMSprop (Hinton 2012; centered: Graves 2013)."""

from __future__ import annotations

from typing import Any

from sluice.optim._math import decayed, mean, mean_square, precise
from sluice.optim._numbers import is_zero, like
from sluice.optim.optimizer import Optimizer


class Adagrad(Optimizer):
    """Rates that fall with the sum of the squared gradients."""

    rowwise = True

    def __init__(self, params: Any, lr: Any = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: Any = None, *, maximize: bool = False,
                 differentiable: bool = False, fused: Any = None) -> None:
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
                                      initial_accumulator_value=initial_accumulator_value, foreach=foreach, maximize=maximize,
                                      differentiable=differentiable, fused=fused))
        self.init_state()

    def _check(self, group: Any) -> None:
        super()._check(group)
        for name in ("lr_decay", "initial_accumulator_value"):
            if group[name] < 0:
                raise ValueError(f"Invalid {name} value: {group[name]}")

    def _refuse_sparse(self, group: Any) -> str | None:
        return " with weight_decay" if group["weight_decay"] else None

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._filled(state, p, "sum", float(group["initial_accumulator_value"]))

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        step = state["step"] + 1
        grad = decayed(group, p, grad)
        total = state["sum"] + grad * grad
        rate = group["lr"] / (1 + (precise(step) - 1) * group["lr_decay"])
        return p - grad / (total.sqrt() + like(group["eps"], p)) * like(rate, p), {"step": step, "sum": total}


class Adadelta(Optimizer):
    """Steps as large as those before, by running averages of both."""

    def __init__(self, params: Any, lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
                 foreach: Any = None, *, capturable: bool = False, maximize: bool = False,
                 differentiable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                      capturable=capturable, foreach=foreach, differentiable=differentiable))

    def _check(self, group: Any) -> None:
        super()._check(group)
        if not 0 <= group["rho"] <= 1:
            raise ValueError(f"Invalid rho value: {group['rho']}")

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._zeros(state, p, "square_avg", "acc_delta")

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        grad, eps = decayed(group, p, grad), like(group["eps"], p)
        square = mean_square(state["square_avg"], grad, group["rho"])
        delta = (state["acc_delta"] + eps).sqrt() / (square + eps).sqrt() * grad
        acc = mean_square(state["acc_delta"], delta, group["rho"])
        return p - delta * like(group["lr"], p), {"step": state["step"] + 1, "square_avg": square, "acc_delta": acc}


class RMSprop(Optimizer):
    """Gradients divided by a running average of their magnitude."""

    def __init__(self, params: Any, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: Any = None,
                 maximize: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered,
                                      weight_decay=weight_decay, capturable=capturable, foreach=foreach, maximize=maximize,
                                      differentiable=differentiable))

    def _check(self, group: Any) -> None:
        super()._check(group)
        for name in ("momentum", "alpha"):
            if group[name] < 0:
                raise ValueError(f"Invalid {name} value: {group[name]}")

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._zeros(state, p, "square_avg", *(() if is_zero(group["momentum"]) else ("momentum_buffer",)),
                    *(("grad_avg",) if group["centered"] else ()))

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        grad, lr = decayed(group, p, grad), like(group["lr"], p)
        square = mean_square(state["square_avg"], grad, group["alpha"])
        changed = {"step": state["step"] + 1, "square_avg": square}
        if group["centered"]:
            average = changed["grad_avg"] = mean(state["grad_avg"], grad, group["alpha"])
            square = square - average * average
        delta = grad / (square.sqrt() + like(group["eps"], p))
        if not is_zero(group["momentum"]):
            delta = changed["momentum_buffer"] = state["momentum_buffer"] * like(group["momentum"], p) + delta
        return p - delta * lr, changed
