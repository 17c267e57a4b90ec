"""Rates by layer, for large batches: LAMB (You et al. 2020) and LARS (You et al. 2017), as OneFlow has them."""

from __future__ import annotations

from typing import Any

from sluice._C import fn, Tensor
from sluice._tensor.creation import ones_like
from sluice.optim._math import decayed, mean, mean_square, norm, precise
from sluice.optim._numbers import is_zero, like
from sluice.optim.optimizer import Optimizer


def _ratio(numerator: Tensor, denominator: Tensor, given: Any) -> Tensor:
    """numerator / denominator where all of `given` is positive, and else 1."""
    positive = (given[0] > 0) & (given[1] > 0)
    return fn.where(positive, numerator / denominator, ones_like(numerator))


class LAMB(Optimizer):
    """Adam whose step for a parameter is as long as lr times the parameter. oneflow.optim.LAMB.

    adam_w_mode: weight decay is added to the step, rather than to the gradient.
    """

    def __init__(self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 adam_w_mode: bool = True, do_bias_correction: bool = True, amsgrad: bool = False, *,
                 maximize: bool = False) -> None:
        if amsgrad:
            raise NotImplementedError("LAMB: amsgrad=True: LAMB has no AMSGrad variant; leave it out")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, adam_w_mode=adam_w_mode,
                                      do_bias_correction=do_bias_correction, amsgrad=amsgrad, maximize=maximize))

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._zeros(state, p, "exp_avg", "exp_avg_sq")

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        step, (beta1, beta2) = state["step"] + 1, group["betas"]
        apart = group["adam_w_mode"]
        grad = decayed({**group, "weight_decay": 0} if apart else group, p, grad)
        m, v = mean(state["exp_avg"], grad, beta1), mean_square(state["exp_avg_sq"], grad, beta2)
        first, second = m, v
        if group["do_bias_correction"]:
            first, second = (x / like(1 - beta ** precise(step), p) for x, beta in ((m, beta1), (v, beta2)))
        delta = first / (second.sqrt() + like(group["eps"], p))
        if apart and not is_zero(group["weight_decay"]):
            delta = delta + p * like(group["weight_decay"], p)
        lengths = norm(p), norm(delta)
        return p - delta * (_ratio(*lengths, lengths) * like(group["lr"], p)), {"step": step, "exp_avg": m, "exp_avg_sq": v}


class LARS(Optimizer):
    """Gradient descent with momentum, whose rate for a parameter is lars_coefficient times its norm by that of its gradient."""

    def __init__(self, params: Any, lr: Any = 1e-3, momentum: float = 0.9, lars_coefficient: float = 1e-4, eps: float = 1e-9,
                 weight_decay: float = 0, *, maximize: bool = False) -> None:
        super().__init__(params, dict(lr=lr, momentum=momentum, lars_coefficient=lars_coefficient, eps=eps,
                                      weight_decay=weight_decay, maximize=maximize))

    def _check(self, group: Any) -> None:
        super()._check(group)
        for name in ("momentum", "lars_coefficient"):
            if group[name] < 0:
                raise ValueError(f"Invalid {name} value: {group[name]}")

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._zeros(state, p, "momentum_buffer")

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        lengths = norm(p), norm(grad)
        below = like(group["eps"], p) + lengths[1] + like(group["weight_decay"], p) * lengths[0]
        rate = _ratio(lengths[0] * like(group["lars_coefficient"], p), below, lengths) * like(group["lr"], p)
        buffer = state["momentum_buffer"] * like(group["momentum"], p) + decayed(group, p, grad) * rate
        return p - buffer, {"momentum_buffer": buffer}
