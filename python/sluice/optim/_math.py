"""The common part of the formulas of several optimizers. Hyperparameters are numbers, or float64 scalars."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice.optim._numbers import is_zero, like


def decayed(group: Any, p: Tensor, grad: Tensor) -> Tensor:
    """The gradient that is gone down, with the weight decay in it."""
    grad = -grad if group["maximize"] else grad
    return grad if is_zero(group["weight_decay"]) else grad + p * like(group["weight_decay"], p)


def decoupled(group: Any, p: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """p and the gradient, where a flag of the group says which of them weight decay changes."""
    if not group["decoupled_weight_decay"]:
        return p, decayed(group, p, grad)
    grad = -grad if group["maximize"] else grad
    return p if is_zero(group["weight_decay"]) else p * like(1 - group["lr"] * group["weight_decay"], p), grad


def precise(step: Tensor) -> Tensor:
    """A counter, for formulas of scalars."""
    return step.to(_C.float64)


def mean(old: Tensor, new: Tensor, beta: Any) -> Tensor:
    """The moving average that forgets with `beta`."""
    return old + (new - old) * like(1 - beta, old)


def mean_square(old: Tensor, grad: Tensor, beta: Any) -> Tensor:
    return old * like(beta, old) + grad * grad * like(1 - beta, old)


def norm(x: Tensor) -> Tensor:
    return (x * x).sum().sqrt()
