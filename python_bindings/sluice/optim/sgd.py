"""Stochastic gradient descent: torch.optim.SGD."""

from __future__ import annotations

from typing import Any

import sluice
from sluice._C import fn
from sluice.optim.optimizer import Optimizer


class SGD(Optimizer):
    """With momentum, dampening, weight decay and Nesterov's momentum."""

    def __init__(self, params: Any, lr: float = 1e-3, momentum: Any = 0, dampening: Any = 0, weight_decay: Any = 0,
                 nesterov: bool = False, *, maximize: bool = False) -> None:
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov, maximize=maximize))

    def _check(self, group: Any) -> None:
        super()._check(group)
        if group["momentum"] < 0:
            raise ValueError(f"Invalid momentum value: {group['momentum']}")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        if group["momentum"]:
            state["momentum_buffer"] = sluice.zeros_like(p.detach())
            if group["dampening"]:
                state["step"] = sluice.zeros((), dtype=sluice.float32)

    def _update(self, group: Any, p: Any, grad: Any, state: Any, lr: Any) -> Any:
        buffer, step = state.get("momentum_buffer"), state.get("step")
        if step is not None:
            step.add_(1)
        new = fn.sgd_update(p, grad, lr, buffer, step, float(group["momentum"]), float(group["dampening"]),
                            float(group["weight_decay"]), group["nesterov"], group["maximize"])
        if buffer is not None:
            buffer._write(new[1])
        return new[0]
