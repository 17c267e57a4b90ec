"""Adam and AdamW: torch.optim.Adam (Kingma and Ba 2015; AMSGrad: Reddi et al. 2018), AdamW (Loshchilov and Hutter 2019)."""

from __future__ import annotations

from typing import Any

import sluice
from sluice._C import fn
from sluice.optim.optimizer import Optimizer


class Adam(Optimizer):
    """Weight decay is added to the gradient."""

    _decoupled = False

    def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, weight_decay: Any = 0,
                 amsgrad: bool = False, *, maximize: bool = False) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                                      maximize=maximize))

    def _check(self, group: Any) -> None:
        super()._check(group)
        if group["eps"] < 0:
            raise ValueError(f"Invalid epsilon value: {group['eps']}")
        for i, beta in enumerate(group["betas"]):
            if not 0 <= beta < 1:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        state["step"] = sluice.zeros((), dtype=sluice.float32)
        for name in ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ()):
            state[name] = sluice.zeros_like(p.detach())

    def _update(self, group: Any, p: Any, grad: Any, state: Any, lr: Any) -> Any:
        state["step"].add_(1)
        names = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if group["amsgrad"] else [])
        new = fn.adam_update(p, grad, state["exp_avg"], state["exp_avg_sq"], state["step"], lr, state.get("max_exp_avg_sq"),
                             tuple(map(float, group["betas"])), float(group["eps"]), float(group["weight_decay"]),
                             self._decoupled, group["maximize"])
        for name, value in zip(names, new[1:]):
            state[name]._write(value)
        return new[0]


class AdamW(Adam):
    """Weight decay shrinks the parameter directly."""

    _decoupled = True

    def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
