"""Relatives of Adam: torch.optim.Adamax (Kingma and Ba 2015), NAdam (Dozat 2016), RAdam (Liu et al. 2020)."""

from __future__ import annotations

from typing import Any

from sluice._C import fn
from sluice._tensor.creation import ones_like
from sluice.optim._math import decayed, decoupled, mean, mean_square, precise
from sluice.optim._numbers import like
from sluice.optim.optimizer import Optimizer


class Adamax(Optimizer):
    """Adam with the infinity norm."""

    def __init__(self, params: Any, lr: Any = 2e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 foreach: Any = None, *, maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, capturable=capturable))

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._zeros(state, p, "exp_avg", "exp_inf")

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        step, (beta1, beta2) = state["step"] + 1, group["betas"]
        grad = decayed(group, p, grad)
        m = mean(state["exp_avg"], grad, beta1)
        peak = fn.maximum(state["exp_inf"] * like(beta2, p), grad.abs() + like(group["eps"], p))
        rate = group["lr"] / (1 - beta1 ** precise(step))
        return p - m / peak * like(rate, p), {"step": step, "exp_avg": m, "exp_inf": peak}


class NAdam(Optimizer):
    """Adam with Nesterov's momentum, which grows from step to step as momentum_decay says."""

    def __init__(self, params: Any, lr: Any = 2e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *, foreach: Any = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
                                      decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach,
                                      capturable=capturable, differentiable=differentiable))

    def _check(self, group: Any) -> None:
        super()._check(group)
        if group["momentum_decay"] < 0:
            raise ValueError(f"Invalid momentum_decay value: {group['momentum_decay']}")

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._scalar(state, "mu_product", 1.0)
        self._zeros(state, p, "exp_avg", "exp_avg_sq")

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        step, (beta1, beta2), lr = state["step"] + 1, group["betas"], group["lr"]
        t = precise(step)
        mu, following = (beta1 * (1 - 0.5 * 0.96 ** (n * group["momentum_decay"])) for n in (t, t + 1))
        product = state["mu_product"] * mu.float()
        p, grad = decoupled(group, p, grad)
        m, v = mean(state["exp_avg"], grad, beta1), mean_square(state["exp_avg_sq"], grad, beta2)
        denominator = (v / like(1 - beta2 ** t, p)).sqrt() + like(group["eps"], p)
        of_grad, of_mean = lr * (1 - mu) / (1 - precise(product)), lr * following / (1 - precise(product) * following)
        p = p - (grad * like(of_grad, p) + m * like(of_mean, p)) / denominator
        return p, {"step": step, "mu_product": product, "exp_avg": m, "exp_avg_sq": v}


class RAdam(Optimizer):
    """Adam that goes by its second moments only once their variance is tractable."""

    def __init__(self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 decoupled_weight_decay: bool = False, *, foreach: Any = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                      foreach=foreach, capturable=capturable, decoupled_weight_decay=decoupled_weight_decay,
                                      differentiable=differentiable))

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._zeros(state, p, "exp_avg", "exp_avg_sq")

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        step, (beta1, beta2) = state["step"] + 1, group["betas"]
        t = precise(step)
        correction1, correction2 = 1 - beta1 ** t, 1 - beta2 ** t
        p, grad = decoupled(group, p, grad)
        m, v = mean(state["exp_avg"], grad, beta1), mean_square(state["exp_avg_sq"], grad, beta2)
        longest = 2 / (1 - beta2) - 1  # of the moving average that is approximated
        length = longest - 2 * t * (1 - correction2) / correction2
        rectified = ((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length) * correction2) ** 0.5
        adapted = like(rectified, p) / (v.sqrt() + like(group["eps"], p))
        factor = fn.where(length > 5, adapted, ones_like(adapted))
        return p - m * like(group["lr"] / correction1, p) * factor, {"step": step, "exp_avg": m, "exp_avg_sq": v}
