"""PolyLRScheduler and TanhLRScheduler, as FlowVision and timm have them."""

from __future__ import annotations

import math
import random
from typing import Any

from sluice._C import Tensor
from sluice.optim.lr_scheduler._formula import choose, floor, log, tanh
from sluice.optim.lr_scheduler.base import LRScheduler


class _Cycles(LRScheduler):
    """Cycles of t_initial steps, each cycle_mul times as long as the one before and cycle_decay times as high, cycle_limit of them;
    before them a warm-up from warmup_lr_init over warmup_t steps.

    step(epoch) is for epochs and step_update(updates) for updates: t_in_epochs says which of them counts. noise_range_t: from this
    step on, or between two, rates are multiplied by 1 + noise, which is drawn of noise_seed and the step.
    """

    def __init__(self, optimizer: Any, t_initial: int, lr_min: float, cycle_mul: float, cycle_decay: float, cycle_limit: int,
                 warmup_t: int, warmup_lr_init: float, warmup_prefix: bool, t_in_epochs: bool, noise_range_t: Any,
                 noise_pct: float, noise_std: float, noise_seed: Any, noise_type: str) -> None:
        if t_initial <= 0:
            raise ValueError(f"{type(self).__name__}: t_initial is {t_initial}; must be at least 1")
        if noise_type not in ("normal", "uniform"):
            raise ValueError(f"{type(self).__name__}: noise_type is {noise_type!r}; must be 'normal' or 'uniform'")
        self.t_initial, self.lr_min, self.cycle_mul, self.cycle_decay, self.cycle_limit = (t_initial, lr_min, cycle_mul,
                                                                                           cycle_decay, cycle_limit)
        self.warmup_t, self.warmup_lr_init, self.warmup_prefix, self.t_in_epochs = warmup_t, warmup_lr_init, warmup_prefix, t_in_epochs
        self.noise_range_t, self.noise_pct, self.noise_std, self.noise_type = noise_range_t, noise_pct, noise_std, noise_type
        self.noise_seed = 42 if noise_seed is None else noise_seed
        super().__init__(optimizer)

    def step(self, epoch: Any = None, metric: Any = None) -> None:
        """metric: not used; timm's signature."""
        if epoch is None or self.in_build():
            super().step()
        elif self.t_in_epochs:
            self._at(epoch)

    def step_update(self, num_updates: int, metric: Any = None) -> None:
        if not self.t_in_epochs:
            self._at(num_updates)

    def _at(self, step: Any) -> None:
        self._step_count += 1
        self._update_lr(step)
        self.print_rates()

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return self._noisy(self._warm(base_lr, step), step)

    def _warm(self, base_lr: Any, step: Any) -> Any:
        if not self.warmup_t:
            return self._cyclic(base_lr, step)
        end = self._warmup_end(base_lr)
        return choose(step < self.warmup_t, lambda: self.warmup_lr_init + step * ((end - self.warmup_lr_init) / self.warmup_t),
                      lambda: self._cyclic(base_lr, step - self.warmup_t if self.warmup_prefix else step))

    def _warmup_end(self, base_lr: Any) -> Any:
        return base_lr

    def _cyclic(self, base_lr: Any, step: Any) -> Any:
        n, mul = self.t_initial, self.cycle_mul
        if mul == 1:
            cycle, length = floor(step / n), n
            at = step - n * cycle
        else:
            cycle = floor(log(1 - step / n * (1 - mul)) / math.log(mul) + 1e-9)
            length, at = mul ** cycle * n, step - (1 - mul ** cycle) / (1 - mul) * n
        return choose(cycle < self.cycle_limit, lambda: self._in_cycle(base_lr * self.cycle_decay ** cycle, at, length),
                      self.lr_min)

    def _in_cycle(self, top: Any, at: Any, length: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: _in_cycle() must be defined")

    def _noisy(self, lr: Any, step: Any) -> Any:
        if self.noise_range_t is None:
            return lr
        if isinstance(step, Tensor):
            raise RuntimeError("noise_range_t: noise is drawn step by step; call step() outside of the graph")
        bounds = self.noise_range_t if isinstance(self.noise_range_t, (list, tuple)) else (self.noise_range_t, math.inf)
        if not bounds[0] <= step < bounds[1]:
            return lr
        draw = random.Random(self.noise_seed + step)
        noise = math.inf
        if self.noise_type == "uniform":
            noise = self.noise_pct * (2 * draw.random() - 1)
        while not abs(noise) <= self.noise_pct:
            noise = draw.gauss(0.0, self.noise_std)
        return lr * (1 + noise)


class PolyLRScheduler(_Cycles):
    """lr_min + (top - lr_min) * (1 - (t / length)^k_decay)^power in each cycle. flowvision.scheduler.PolyLRScheduler."""

    def __init__(self, optimizer: Any, t_initial: int, power: float = 0.5, lr_min: float = 0.0, cycle_mul: float = 1.0,
                 cycle_decay: float = 1.0, cycle_limit: int = 1, warmup_t: int = 0, warmup_lr_init: float = 0,
                 warmup_prefix: bool = False, t_in_epochs: bool = True, noise_range_t: Any = None, noise_pct: float = 0.67,
                 noise_std: float = 1.0, noise_seed: Any = 42, k_decay: float = 1.0, initialize: bool = True,
                 noise_type: str = "normal") -> None:
        self.power, self.k_decay, self.initialize = power, k_decay, initialize
        super().__init__(optimizer, t_initial, lr_min, cycle_mul, cycle_decay, cycle_limit, warmup_t, warmup_lr_init,
                         warmup_prefix, t_in_epochs, noise_range_t, noise_pct, noise_std, noise_seed, noise_type)

    def _in_cycle(self, top: Any, at: Any, length: Any) -> Any:
        k = self.k_decay
        return self.lr_min + (top - self.lr_min) * (1 - at ** k / length ** k) ** self.power


class TanhLRScheduler(_Cycles):
    """lr_min + (top - lr_min) * (1 - tanh(lb (1 - t / length) + ub t / length)) / 2 in each cycle (Hsueh et al. 2018).
    flowvision.scheduler.TanhLRScheduler. Without warmup_prefix, the warm-up ends where the first cycle is after warmup_t steps."""

    def __init__(self, optimizer: Any, t_initial: int, lb: float = -7.0, ub: float = 3.0, lr_min: float = 0.0,
                 cycle_mul: float = 1.0, cycle_decay: float = 1.0, cycle_limit: int = 1, warmup_t: int = 0,
                 warmup_lr_init: float = 0, warmup_prefix: bool = False, t_in_epochs: bool = True, noise_range_t: Any = None,
                 noise_pct: float = 0.67, noise_std: float = 1.0, noise_seed: Any = 42, initialize: bool = True,
                 noise_type: str = "normal") -> None:
        if not lb < ub:
            raise ValueError(f"TanhLRScheduler: lb is {lb} and ub is {ub}; lb must be below ub")
        self.lb, self.ub, self.initialize = lb, ub, initialize
        super().__init__(optimizer, t_initial, lr_min, cycle_mul, cycle_decay, cycle_limit, warmup_t, warmup_lr_init,
                         warmup_prefix, t_in_epochs, noise_range_t, noise_pct, noise_std, noise_seed, noise_type)

    def _warmup_end(self, base_lr: Any) -> Any:
        return base_lr if self.warmup_prefix else self._cyclic(base_lr, self.warmup_t)

    def _in_cycle(self, top: Any, at: Any, length: Any) -> Any:
        done = at / length
        return self.lr_min + 0.5 * (top - self.lr_min) * (1 - tanh(self.lb * (1 - done) + self.ub * done))
