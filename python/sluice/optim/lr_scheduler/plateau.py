"""ReduceLROnPlateau: torch.optim.lr_scheduler."""

from __future__ import annotations

import math
import warnings
from typing import Any

from sluice.optim.lr_scheduler.base import LRScheduler, check_optimizer, rates, write


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rates by `factor` once a metric has not become better for more than `patience` steps.

    With a graph, too, step(metric) is called from outside, and the rates reach its next call.
    """

    def __init__(self, optimizer: Any, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
                 threshold_mode: str = "rel", cooldown: int = 0, min_lr: Any = 0, eps: float = 1e-8,
                 verbose: bool = False) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        check_optimizer(optimizer)
        if isinstance(min_lr, (list, tuple)) and len(min_lr) != len(optimizer.param_groups):
            raise ValueError(f"expected {len(optimizer.param_groups)} min_lrs, got {len(min_lr)}")
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = list(min_lr) if self.default_min_lr is None else [min_lr] * len(optimizer.param_groups)
        self.factor, self.optimizer, self.patience, self.cooldown, self.eps = factor, optimizer, patience, cooldown, eps
        self.verbose, self.last_epoch, self._last_lr = verbose, 0, rates(optimizer)
        self._compare(mode, threshold, threshold_mode)
        self._reset()

    def _compare(self, mode: str, threshold: float, threshold_mode: str) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.mode_worse = math.inf if mode == "min" else -math.inf

    def _reset(self) -> None:
        self.best, self.cooldown_counter, self.num_bad_epochs = self.mode_worse, 0, 0

    @property
    def in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        sign = -1.0 if self.mode == "min" else 1.0
        bar = best * (1.0 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        return a < bar if self.mode == "min" else a > bar

    def step(self, metrics: Any, epoch: Any = None) -> None:  # type: ignore[override]
        if self.in_build():
            raise RuntimeError("ReduceLROnPlateau.step(): inside build(); the metric is a value of the graph: call "
                               "step(metric) outside, with what the graph returns")
        current = float(metrics)
        if epoch is not None:
            warnings.warn("The epoch parameter in `scheduler.step()` is being deprecated where possible.", UserWarning,
                          stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = rates(self.optimizer)
        self.print_rates()

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(f"The number of param groups in the `optimizer` ({len(groups)}) differs from when "
                                   f"`ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due to a new param "
                                   "group being added to the optimizer. Please modify the `min_lrs` field to match the "
                                   "length of the `optimizer` param groups.")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                write(self.optimizer, group, "lr", new)

    def get_lr(self, step: Any = None) -> list[Any]:
        raise NotImplementedError("ReduceLROnPlateau.get_lr: rates depend on the metrics; see get_last_lr()")

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        self._compare(self.mode, self.threshold, self.threshold_mode)
