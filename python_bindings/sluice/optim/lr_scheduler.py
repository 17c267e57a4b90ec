"""Learning-rate schedules: torch.optim.lr_scheduler, each as a closed formula of the step.

The formula is written once, on numbers or on a traced step counter: eager steps evaluate it, and graphs compile it.
"""

from __future__ import annotations

import bisect
import math
from typing import Any

import sluice
from sluice._C import Tensor
from sluice._host_function import host_function
from sluice.distributed._state import state as job


def _where(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, Tensor):  # numbers alone would give the default dtype
        return sluice.where(condition, *(sluice.tensor(float(v), dtype=sluice.float64) for v in (a, b)))
    return a if condition else b


def _floor_div(step: Any, n: int) -> Any:
    return (step / n).floor() if isinstance(step, Tensor) else step // n


def _cos(x: Any) -> Any:
    return x.cos() if isinstance(x, Tensor) else math.cos(x)


def _minimum(step: Any, n: int) -> Any:
    return step.clamp(max=n) if isinstance(step, Tensor) else min(step, n)


class LRScheduler:
    """Sets each group's lr to `lr_at(base_lr, step)`; step 0 is set at construction.

    verbose: rank 0 prints each step and its lr; of a graph, the plan has an actor that does.
    """

    def __init__(self, optimizer: Any, last_epoch: Any = -1, verbose: bool = False) -> None:
        self.optimizer, self.verbose = optimizer, verbose
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [g["initial_lr"] for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._counter = None
        self.step()

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        """The learning rate of parameter group number `group` at `step`, a number or a traced float64 scalar."""
        raise NotImplementedError(f"{type(self).__name__}: lr_at() must be defined")

    def get_last_lr(self) -> Any:
        if self._counter is not None:  # a graph counts the steps
            self.last_epoch = int(self._counter.item())
            self._set()
        return [g["lr"] for g in self.optimizer.param_groups]

    get_lr = get_last_lr

    def step(self, epoch: Any = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._counter is not None:
            self._counter.fill_(self.last_epoch)
        self._set()
        if self.verbose:
            self._print(self.last_epoch, *(g["lr"] for g in self.optimizer.param_groups))

    def _set(self) -> None:
        for i, group in enumerate(self.optimizer.param_groups):
            group["lr"] = self.lr_at(self.base_lrs[i], self.last_epoch, i)

    def _print(self, step: Any, *lrs: Any) -> Any:
        if job.rank == 0:
            for i, lr in enumerate(lrs):
                print(f"step {int(step)}: the learning rate of group {i} is {float(lr):.6g}")
        return step

    # In a graph: the step is a variable, and the formula is part of the plan.

    def counter(self) -> Any:
        if self._counter is None:
            self._counter = sluice.tensor(float(self.last_epoch), dtype=sluice.float64)
        return self._counter

    def traced_lr(self, group: Any) -> Any:
        """The lr as a traced scalar of this call's step. REQUIRES: inside a graph's trace, before advance()."""
        try:
            lr = self.lr_at(self.base_lrs[group], self._counter + 0.0, group)
        except (RuntimeError, TypeError) as error:
            raise RuntimeError(f"{type(self).__name__}: the schedule cannot be part of a graph: {error}; write it with tensor "
                               "operations on the step") from error
        return lr if isinstance(lr, Tensor) else sluice.tensor(float(lr), dtype=sluice.float64)

    def advance(self, lrs: Any) -> None:
        """Ends a traced step, whose learning rates are `lrs`."""
        if self.verbose:
            host_function(self._print, self._counter + 0.0, *lrs, out=((), sluice.float64))
        with sluice.no_grad():
            self._counter.add_(1.0)

    def state_dict(self) -> Any:
        self.get_last_lr()
        return {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_counter", "lr_lambdas")}

    def load_state_dict(self, state_dict: Any) -> None:
        self.__dict__.update(state_dict)
        if self._counter is not None:
            self._counter.fill_(self.last_epoch)
        self._set()


class LambdaLR(LRScheduler):
    """base * lr_lambda(step). In a graph the function is traced, so it must use arithmetic, not `if`."""

    def __init__(self, optimizer: Any, lr_lambda: Any, last_epoch: Any = -1, verbose: bool = False) -> None:
        n = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * n
        if len(self.lr_lambdas) != n:
            raise ValueError(f"Expected {n} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr * self.lr_lambdas[group](step)


class StepLR(LRScheduler):
    """base * gamma^(step // step_size)."""

    def __init__(self, optimizer: Any, step_size: int, gamma: float = 0.1, last_epoch: Any = -1, verbose: bool = False) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr * self.gamma ** _floor_div(step, self.step_size)


class MultiStepLR(LRScheduler):
    """base * gamma^(number of milestones reached)."""

    def __init__(self, optimizer: Any, milestones: Any, gamma: float = 0.1, last_epoch: Any = -1, verbose: bool = False) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        if not isinstance(step, Tensor):
            return base_lr * self.gamma ** bisect.bisect_right(self.milestones, step)
        reached = sum((step >= m).to(step.dtype) for m in self.milestones)
        return base_lr * self.gamma ** reached


class ExponentialLR(LRScheduler):
    """base * gamma^step."""

    def __init__(self, optimizer: Any, gamma: Any, last_epoch: Any = -1, verbose: bool = False) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr * self.gamma ** step


class ConstantLR(LRScheduler):
    """base * factor for the first total_iters steps."""

    def __init__(self, optimizer: Any, factor: Any = 1.0 / 3, total_iters: Any = 5, last_epoch: Any = -1,
                 verbose: bool = False) -> None:
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr * _where(step < self.total_iters, self.factor, 1.0)


class LinearLR(LRScheduler):
    """From start_factor to end_factor over total_iters steps."""

    def __init__(self, optimizer: Any, start_factor: Any = 1.0 / 3, end_factor: float = 1.0, total_iters: Any = 5,
                 last_epoch: Any = -1, verbose: bool = False) -> None:
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        done = _minimum(step, self.total_iters) / self.total_iters
        return base_lr * (self.start_factor + (self.end_factor - self.start_factor) * done)


class PolynomialLR(LRScheduler):
    """base * (1 - step / total_iters)^power."""

    def __init__(self, optimizer: Any, total_iters: Any = 5, power: float = 1.0, last_epoch: Any = -1,
                 verbose: bool = False) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr * (1.0 - _minimum(step, self.total_iters) / self.total_iters) ** self.power


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from base to eta_min over T_max steps (Loshchilov and Hutter 2017)."""

    def __init__(self, optimizer: Any, T_max: int, eta_min: float = 0.0, last_epoch: Any = -1, verbose: bool = False) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return self.eta_min + (base_lr - self.eta_min) * (1 + _cos(step * (math.pi / self.T_max))) / 2
