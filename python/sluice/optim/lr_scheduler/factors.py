"""Schedules that multiply the learning rate step by step, and functions of the step. torch.optim.lr_scheduler."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from numbers import Integral
from typing import Any

from sluice._C import Tensor
from sluice.optim.lr_scheduler._formula import at_most, choose, cos, either, floor, log, rest
from sluice.optim.lr_scheduler.base import LRScheduler, rates, saved_function, write


class _Functions(LRScheduler):
    """A function of the step for each group."""

    _not_saved = (*LRScheduler._not_saved, "lr_lambdas")

    def __init__(self, optimizer: Any, lr_lambda: Any, last_epoch: Any = -1, verbose: bool = False) -> None:
        n = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * n
        if len(self.lr_lambdas) != n:
            raise ValueError(f"Expected {n} lr_lambdas, but got {len(self.lr_lambdas)}")
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, last_epoch, verbose)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "lr_lambdas": [saved_function(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"]):
            if saved is not None:
                function.__dict__.update(saved)


class LambdaLR(_Functions):
    """base * lr_lambda(step). In a graph the function is traced, so it must use arithmetic, not `if`."""

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr * self.lr_lambdas[group](step)


class MultiplicativeLR(_Functions):
    """lr * lr_lambda(step) from step to step. In a graph the function is traced, so it must use arithmetic, not `if`."""

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        return lr if self._is_initial else lr * self.lr_lambdas[group](step)

    def _rates_of(self, step: Any) -> list[Any]:
        return self.simulated(step)


class StepLR(LRScheduler):
    """base * gamma^(step // step_size)."""

    def __init__(self, optimizer: Any, step_size: int, gamma: float = 0.1, last_epoch: Any = -1, verbose: bool = False) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr * self.gamma ** floor(step / self.step_size)

    def multiplies(self) -> bool:
        return True

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        return choose(either(step == 0, rest(step, self.step_size) != 0), lr, lambda: lr * self.gamma)


class MultiStepLR(LRScheduler):
    """base * gamma^(number of milestones reached)."""

    def __init__(self, optimizer: Any, milestones: Any, gamma: float = 0.1, last_epoch: Any = -1,
                 verbose: bool = False) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        milestones = sorted(self.milestones.elements())
        if not isinstance(step, Tensor):
            return base_lr * self.gamma ** bisect.bisect_right(milestones, step)
        return base_lr * self.gamma ** sum((step >= m).to(step.dtype) for m in milestones)

    def multiplies(self) -> bool:
        return True

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        if not isinstance(step, Tensor):
            return lr * self.gamma ** self.milestones[step] if step in self.milestones else lr
        return lr * self.gamma ** sum((step == m).to(step.dtype) * n for m, n in self.milestones.items())


class ExponentialLR(LRScheduler):
    """base * gamma^step."""

    def __init__(self, optimizer: Any, gamma: Any, last_epoch: Any = -1, verbose: bool = False) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr * self.gamma ** step

    def multiplies(self) -> bool:
        return True

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        return lr if self._is_initial else lr * self.gamma


class ConstantLR(LRScheduler):
    """base * factor for the first total_iters steps."""

    def __init__(self, optimizer: Any, factor: Any = 1.0 / 3, total_iters: Any = 5, last_epoch: Any = -1,
                 verbose: bool = False) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr * choose(step < self.total_iters, self.factor, 1.0)

    def multiplies(self) -> bool:
        return True

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        return choose(step == 0, lambda: lr * self.factor,
                      lambda: choose(step == self.total_iters, lambda: lr / self.factor, lr))


class LinearLR(LRScheduler):
    """From start_factor to end_factor over total_iters steps."""

    def __init__(self, optimizer: Any, start_factor: Any = 1.0 / 3, end_factor: float = 1.0, total_iters: Any = 5,
                 last_epoch: Any = -1, verbose: bool = False) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch, verbose)

    def _factor(self, step: Any) -> Any:
        return self.start_factor + (self.end_factor - self.start_factor) * at_most(step, self.total_iters) / self.total_iters

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr * self._factor(step)

    def multiplies(self) -> bool:
        return True

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        return choose(step == 0, lambda: lr * self.start_factor, lambda: choose(
            either(self._is_initial, step > self.total_iters), lr, lambda: lr * (self._factor(step) / self._factor(step - 1))))


class PolynomialLR(LRScheduler):
    """base * (1 - step / total_iters)^power.

    By keywords also OneFlow's: over `steps` down to `end_learning_rate`, which it reaches again and again where it is a `cycle`:
    then the decay takes ceil(step / steps) times as many steps.
    """

    def __init__(self, optimizer: Any, total_iters: Any = 5, power: float = 1.0, last_epoch: Any = -1, verbose: bool = False, *,
                 steps: Any = None, end_learning_rate: Any = None, cycle: bool = False) -> None:
        if isinstance(last_epoch, float):
            raise TypeError(f"PolynomialLR: last_epoch is {last_epoch!r}; must be an int: the arguments are (optimizer, "
                            "total_iters, power), as in torch; give OneFlow's by keyword: steps=, end_learning_rate=, "
                            "power=, cycle=")
        self.total_iters, self.power, self.cycle = total_iters if steps is None else steps, power, cycle
        self.end_lr = (0.0 if steps is None else 1e-4) if end_learning_rate is None else end_learning_rate
        if steps is not None and steps <= 0:
            raise ValueError(f"PolynomialLR: the number of steps is {self.total_iters}; must be at least 1")
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        over: Any = self.total_iters
        if self.cycle:
            rounds = -floor(-step / over)
            over = over * choose(rounds < 1, 1.0, rounds)
            done = step / over
        else:
            done = at_most(step, over) / over
        return (base_lr - self.end_lr) * (1.0 - done) ** self.power + self.end_lr

    def multiplies(self) -> bool:
        return not self.cycle and self.end_lr == 0

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        if not self.multiplies():
            return self.lr_at(self.base_lrs[group], step, group)
        left = lambda t: 1.0 - t / self.total_iters  # noqa: E731
        return choose(either(self._is_initial, step > self.total_iters), lr,
                      lambda: lr * (left(step) / left(step - 1)) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from base to eta_min over T_max steps (Loshchilov and Hutter 2017)."""

    def __init__(self, optimizer: Any, T_max: int, eta_min: float = 0.0, last_epoch: Any = -1, verbose: bool = False) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return self.eta_min + (base_lr - self.eta_min) * (1 + cos(step * (math.pi / self.T_max))) / 2

    def multiplies(self) -> bool:
        return self.eta_min == 0

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        if self._is_initial:
            return lr
        height = lambda t: 1 + cos(t * (math.pi / self.T_max))  # noqa: E731
        up = (self.base_lrs[group] - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        # At the bottom of the wave there is nothing to multiply.
        return choose(rest(step - 1 - self.T_max, 2 * self.T_max) == 0, lambda: lr + up,
                      lambda: height(step) / height(step - 1) * (lr - self.eta_min) + self.eta_min)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from base to eta_min over T_0 steps, then again over T_mult times as many."""

    def __init__(self, optimizer: Any, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: Any = -1,
                 verbose: bool = False) -> None:
        if not isinstance(T_0, Integral) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, Integral) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, Integral)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch, verbose)

    def period(self, step: Any) -> tuple[Any, Any]:
        """The step within its period, and how long that is."""
        if self.T_mult == 1:
            return rest(step, self.T_0), self.T_0
        # The small addition is for periods that end where the logarithm should be whole.
        n = floor(log(step / self.T_0 * (self.T_mult - 1) + 1) / math.log(self.T_mult) + 1e-9)
        return step - self.T_0 * (self.T_mult ** n - 1) / (self.T_mult - 1), self.T_0 * self.T_mult ** n

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        at, period = self.period(step)
        return self._in_period(base_lr, at, period)

    def _in_period(self, base_lr: Any, at: Any, period: Any) -> Any:
        return self.eta_min + (base_lr - self.eta_min) * (1 + cos(math.pi * at / period)) / 2

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        if isinstance(step, Tensor):
            return self.lr_at(self.base_lrs[group], step, group)
        return self._in_period(self.base_lrs[group], self.T_cur, self.T_i)

    def step(self, epoch: Any = None) -> None:
        """epoch: may have a fraction, of the batches of an epoch."""
        if self.in_build() or isinstance(self.last_epoch, Tensor):
            return super().step()
        if epoch is None and self.last_epoch >= 0:
            self.T_cur = self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
            return super().step()
        epoch = 0 if epoch is None else epoch
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        self.T_cur, self.T_i = self.period(epoch)
        self._step_count += 1
        self.last_epoch = math.floor(epoch)
        for i, group in enumerate(self.optimizer.param_groups):
            write(self.optimizer, group, "lr", self.next_lr(group["lr"], self.last_epoch, i))
        self._last_lr = rates(self.optimizer)
        self.print_rates()

    def pulled(self, step: int) -> None:
        super().pulled(step)
        self.T_cur, self.T_i = self.period(step)
