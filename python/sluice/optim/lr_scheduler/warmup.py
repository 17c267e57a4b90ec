"""Warm-ups and decays of OneFlow and LiBai."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from sluice.optim.lr_scheduler._formula import at_most, choose, cos, linear
from sluice.optim.lr_scheduler.base import LRScheduler, StandIn


class CosineDecayLR(LRScheduler):
    """Half a cosine from base to alpha * base over decay_steps steps, where it stays. oneflow.optim.lr_scheduler.CosineDecayLR."""

    def __init__(self, optimizer: Any, decay_steps: int, alpha: float = 0.0, last_step: int = -1,
                 verbose: bool = False) -> None:
        if decay_steps <= 0:
            raise ValueError(f"CosineDecayLR: decay_steps is {decay_steps}; must be at least 1")
        self.decay_steps, self.alpha = decay_steps, alpha
        super().__init__(optimizer, last_step, verbose)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        done = at_most(step, self.decay_steps) * (math.pi / self.decay_steps)
        return base_lr * ((1 - self.alpha) * 0.5 * (1 + cos(done)) + self.alpha)


class WarmupLR(LRScheduler):
    """A linear or constant warm-up of an optimizer's rates, or before another schedule. oneflow.optim.lr_scheduler.WarmupLR.

    It begins at warmup_factor times the base. A linear one meets the schedule where this is at step warmup_iters, or, with
    warmup_prefix, where it begins, as the schedule then starts after the warm-up. Step this schedule, not the other.
    """

    def __init__(self, scheduler_or_optimizer: Any, warmup_factor: float = 1.0 / 3, warmup_iters: int = 5,
                 warmup_method: str = "linear", warmup_prefix: bool = False, last_step: int = -1,
                 verbose: bool = False) -> None:
        if warmup_method not in ("linear", "constant"):
            raise ValueError(f"{type(self).__name__}: warmup_method is {warmup_method!r}; must be 'linear' or 'constant'")
        if not isinstance(warmup_iters, Integral) or warmup_iters < 0:
            raise ValueError(f"{type(self).__name__}: warmup_iters is {warmup_iters!r}; must be an int of at least 0")
        self._inner = scheduler_or_optimizer if isinstance(scheduler_or_optimizer, LRScheduler) else None
        self.warmup_factor, self.warmup_iters = warmup_factor, warmup_iters
        self.warmup_method, self.warmup_prefix = warmup_method, warmup_prefix
        if self._inner is not None and type(self._inner).lr_at is LRScheduler.lr_at:
            raise TypeError(f"{type(self).__name__}: {type(self._inner).__name__} has no closed formula lr_at(); use "
                            "SequentialLR")
        super().__init__(scheduler_or_optimizer if self._inner is None else self._inner.optimizer, last_step, verbose)

    _not_saved = (*LRScheduler._not_saved, "_inner")

    def stand_in(self, optimizer: StandIn) -> Any:
        clone = super().stand_in(optimizer)
        clone._inner = self._inner and self._inner.stand_in(optimizer)
        return clone

    def _after(self, base_lr: Any, step: Any, group: Any) -> Any:
        return base_lr if self._inner is None else self._inner.lr_at(base_lr, step, group)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        n = self.warmup_iters
        begin = base_lr * self.warmup_factor

        def warm() -> Any:
            if self.warmup_method == "constant":
                return begin
            return linear(begin, self._after(base_lr, 0 if self.warmup_prefix else n, group), step / n)

        if n == 0:
            return self._after(base_lr, step, group)
        return choose(step < n, warm, lambda: self._after(base_lr, step - n if self.warmup_prefix else step, group))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() if self._inner is None else {**super().state_dict(), "_inner": self._inner.state_dict()}

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        if self._inner is not None and "_inner" in state_dict:
            self._inner.load_state_dict(state_dict["_inner"])


WarmUpLR = WarmupLR


class WarmupCosineLR(WarmupLR):
    """A cosine decay to alpha * base over max_iter steps, of which the first are a warm-up. libai.scheduler.WarmupCosineLR.

    warmup_iter: their number; or warmup_ratio: their share of max_iter.
    """

    def __init__(self, optimizer: Any, max_iter: int, warmup_factor: float = 0.001, warmup_iter: Any = None,
                 alpha: float = 0.01, warmup_method: str = "linear", last_step: int = -1, verbose: bool = False, *,
                 warmup_ratio: Any = None) -> None:
        if warmup_iter is not None and warmup_ratio is not None:
            raise ValueError("WarmupCosineLR: give either warmup_iter or warmup_ratio")
        n = int(max_iter * warmup_ratio) if warmup_ratio is not None else warmup_iter or 0
        super().__init__(CosineDecayLR(optimizer, max_iter, alpha), warmup_factor, n, warmup_method, last_step=last_step,
                         verbose=verbose)
