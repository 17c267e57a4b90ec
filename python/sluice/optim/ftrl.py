"""FTRL-Proximal (McMahan et al. 2013), as OneFlow has it."""

from __future__ import annotations

from typing import Any

from sluice._C import fn
from sluice._tensor.creation import full_like, zeros_like
from sluice.optim._math import decayed
from sluice.optim._numbers import like
from sluice.optim.optimizer import Optimizer


class FTRL(Optimizer):
    """Follow the regularized leader: sparse solutions, by lambda1 (of the L1 norm) and lambda2 (of the squared L2 norm)."""

    def __init__(self, params: Any, lr: Any = 1e-3, weight_decay: float = 0, lr_power: float = -0.5,
                 initial_accumulator_value: float = 0.1, lambda1: float = 0.0, lambda2: float = 0.0, beta: float = 0.0, *,
                 maximize: bool = False) -> None:
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, lr_power=lr_power, lambda1=lambda1, lambda2=lambda2,
                                      beta=beta, initial_accumulator_value=initial_accumulator_value, maximize=maximize))

    def _check(self, group: Any) -> None:
        super()._check(group)
        if group["lr_power"] > 0:
            raise ValueError(f"Invalid lr_power value: {group['lr_power']}")
        for name in ("initial_accumulator_value", "lambda1", "lambda2", "beta"):
            if group[name] < 0:
                raise ValueError(f"Invalid {name} value: {group[name]}")

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        if "accumulator" not in state:
            state["accumulator"] = full_like(p.detach(), float(group["initial_accumulator_value"]))
        self._zeros(state, p, "z")

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        grad = decayed(group, p, grad)
        lr, power, lambda1, lambda2, beta = (like(group[name], p) for name in ("lr", "lr_power", "lambda1", "lambda2", "beta"))
        total = state["accumulator"] + grad * grad
        above = total ** -power
        z = state["z"] + grad - (above - state["accumulator"] ** -power) / lr * p
        shrunk = z - z.sign() * lambda1
        new = fn.where(z.abs() <= lambda1, zeros_like(z), -shrunk / ((beta + above) / lr + lambda2))
        return new, {"accumulator": total, "z": z}
