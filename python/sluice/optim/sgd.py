"""Stochastic gradient descent: torch.optim.SGD."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice.optim._math import decayed
from sluice.optim._numbers import is_zero, like
from sluice.optim.optimizer import Optimizer


class SGD(Optimizer):
    """With momentum, dampening, weight decay and Nesterov's momentum."""

    rowwise = True

    _widen = False

    def __init__(self, params: Any, lr: Any = 1e-3, momentum: Any = 0, dampening: Any = 0, weight_decay: Any = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: Any = None, differentiable: bool = False,
                 fused: Any = None) -> None:
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov, maximize=maximize, foreach=foreach, differentiable=differentiable,
                                      fused=fused))

    def _check(self, group: Any) -> None:
        super()._check(group)
        if group["momentum"] < 0:
            raise ValueError(f"Invalid momentum value: {group['momentum']}")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")

    def _refuse_sparse(self, group: Any) -> str | None:
        return None if is_zero(group["momentum"]) and is_zero(group["weight_decay"]) else " with momentum or weight_decay"

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        if is_zero(group["momentum"]):
            return
        self._zeros(state, p, "momentum_buffer")
        if not is_zero(group["dampening"]) and "_step" not in state:  # the first buffer is the gradient, undamped
            state["_step"] = (state["momentum_buffer"] != 0).any().to(_C.float32)

    def _loaded(self, group: Any, p: Any, state: Any, saved: Any) -> None:
        if isinstance(state.get("_step"), Tensor) and saved.get("momentum_buffer") is not None:
            state["_step"].fill_(1.0)

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        momentum, dampening, decay = (group[name] for name in ("momentum", "dampening", "weight_decay"))
        buffer, step = state.get("momentum_buffer"), None
        if is_zero(momentum):
            buffer = None
        elif not is_zero(dampening):
            step = state["_step"] + 1 if "_step" in state else None
        if any(isinstance(x, Tensor) for x in (momentum, dampening, decay)):
            return self._varying(group, p, grad, buffer, step)
        new = fn.sgd_update(p, grad, group["lr"], buffer, step, float(momentum), float(dampening), float(decay),
                            group["nesterov"], group["maximize"])
        return new[0], self._changed(new[1] if buffer is not None else None, step)

    def _varying(self, group: Any, p: Any, grad: Any, buffer: Any, step: Any) -> Any:
        """The same, of hyperparameters that are tensors."""
        momentum, dampening, lr = (like(group[name], p) for name in ("momentum", "dampening", "lr"))
        d = grad = decayed(group, p, grad)
        if buffer is not None:
            old, buffer = buffer, buffer * momentum + grad * (1 - dampening)
            if step is not None:
                buffer = fn.where(step <= 1, grad, buffer)
            d = grad + buffer * momentum if group["nesterov"] else buffer
            if isinstance(momentum, Tensor):  # at 0, as if there were none
                d, buffer = fn.where(momentum == 0, grad, d), fn.where(momentum == 0, old, buffer)
        return p - d * lr, self._changed(buffer, step)

    @staticmethod
    def _changed(buffer: Any, step: Any) -> dict[str, Any]:
        return {k: v for k, v in (("momentum_buffer", buffer), ("_step", step)) if v is not None}
