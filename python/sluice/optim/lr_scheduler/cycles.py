"""CyclicLR (Smith 2017) and OneCycleLR (Smith and Topin 2019), which may cycle the momentum, too. torch.optim.lr_scheduler."""

from __future__ import annotations

import types
from numbers import Integral
from typing import Any

from sluice._C import Tensor
from sluice.optim.lr_scheduler._formula import ANNEALING, anneal_of, choose, floor
from sluice.optim.lr_scheduler.base import LRScheduler, check_optimizer, per_group, put, saved_function, write


class _Cycle(LRScheduler):
    """Sets momentum, or the first beta, against the learning rate."""

    cycle_momentum = False
    use_beta1 = False

    def _begin_momentum(self, optimizer: Any, base: Any, most: Any, last_epoch: int) -> tuple[list[Any], list[Any]]:
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in optimizer.defaults
        bases, mosts = per_group("base_momentum", optimizer, base), per_group("max_momentum", optimizer, most)
        if last_epoch == -1:
            for low, high, group in zip(bases, mosts, optimizer.param_groups):
                put(group, self._momentum, high)
                group.update(max_momentum=high, base_momentum=low)
        return bases, mosts

    @property
    def _momentum(self) -> str:
        return "betas.0" if self.use_beta1 else "momentum"

    def written(self) -> list[str]:
        return ["lr", self._momentum] if self.cycle_momentum else ["lr"]

    def momentum_at(self, step: Any, group: int) -> Any:
        """The momentum of parameter group number `group` at `step`."""
        raise NotImplementedError(f"{type(self).__name__}: momentum_at() must be defined")

    def get_lr(self, step: Any = None) -> list[Any]:
        values = super().get_lr(step)
        if step is None and self.cycle_momentum:
            for i, group in enumerate(self.optimizer.param_groups):
                put(group, self._momentum, self.momentum_at(self.last_epoch, i))
        return values


class CyclicLR(_Cycle):
    """Up from base_lr to max_lr and down again, in straight lines whose height scale_fn or the mode changes."""

    _not_saved = (*LRScheduler._not_saved, "_scale_fn_custom")

    def __init__(self, optimizer: Any, base_lr: Any, max_lr: Any, step_size_up: int = 2000, step_size_down: Any = None,
                 mode: str = "triangular", gamma: float = 1.0, scale_fn: Any = None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum: Any = 0.8, max_momentum: Any = 0.9, last_epoch: int = -1,
                 verbose: bool = False) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups):
                write(optimizer, group, "lr", lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma, self._scale_fn_custom, self.scale_mode = mode, gamma, scale_fn, scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch, verbose)
        self.base_lrs = base_lrs

    def scale_fn(self, x: Any) -> Any:
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / (2.0 ** (x - 1)) if self.mode == "triangular2" else self.gamma ** x

    def _share(self, step: Any) -> Any:
        """The share of the way from the base to the maximum."""
        cycle = floor(1 + step / self.total_size)
        x = 1.0 + step / self.total_size - cycle
        height = choose(x <= self.step_ratio, lambda: x / self.step_ratio, lambda: (x - 1) / (self.step_ratio - 1))
        return height * self.scale_fn(cycle if self.scale_mode == "cycle" else step)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        return self.base_lrs[group] + (self.max_lrs[group] - self.base_lrs[group]) * self._share(step)

    def momentum_at(self, step: Any, group: int) -> Any:
        return self.max_momentums[group] - (self.max_momentums[group] - self.base_momentums[group]) * self._share(step)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_scale_fn_custom": saved_function(self._scale_fn_custom)}

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        saved = state_dict.get("_scale_fn_custom")
        if saved is not None:
            if self._scale_fn_custom is None or isinstance(self._scale_fn_custom, types.FunctionType):
                raise ValueError("CyclicLR: the state has that of a scale_fn object; make the schedule with such an object")
            self._scale_fn_custom.__dict__.update(saved)


class OneCycleLR(_Cycle):
    """Up to max_lr, and down to far below where it began, over total_steps; the momentum goes the other way."""

    def __init__(self, optimizer: Any, max_lr: Any, total_steps: Any = None, epochs: Any = None, steps_per_epoch: Any = None,
                 pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: Any = 0.85,
                 max_momentum: Any = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
                 last_epoch: int = -1, verbose: bool = False) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
            for name, value in (("epochs", epochs), ("steps_per_epoch", steps_per_epoch)):
                if not isinstance(value, Integral) or value <= 0:
                    raise ValueError(f"Expected positive integer {name}, but got {value}")
            total_steps = epochs * steps_per_epoch
        elif not isinstance(total_steps, Integral) or total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        self.total_steps = total_steps
        up, end = float(pct_start * total_steps) - 1, total_steps - 1
        rates = ["initial_lr", "max_lr", "initial_lr", "min_lr"] if three_phase else ["initial_lr", "max_lr", "min_lr"]
        momenta = ["max_momentum", "base_momentum", "max_momentum", "max_momentum"][:len(rates)]
        ends = [up, float(2 * pct_start * total_steps) - 2, end] if three_phase else [up, end]
        self._schedule_phases = [dict(end_step=e, start_lr=a, end_lr=b, start_momentum=m, end_momentum=n)
                                 for e, a, b, m, n in zip(ends, rates, rates[1:], momenta, momenta[1:])]
        anneal_of(anneal_strategy)
        self._anneal_func_type = anneal_strategy
        for group, most in zip(optimizer.param_groups, per_group("max_lr", optimizer, max_lr)):
            if last_epoch == -1:
                begin = most / div_factor
                group.update(initial_lr=begin, max_lr=most, min_lr=begin / final_div_factor)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch, verbose)

    def _annealed(self, step: Any, group: int, what: str) -> Any:
        own = self.optimizer.param_groups[group]
        begin, starts = 0.0, []
        for phase in self._schedule_phases:
            starts.append(begin)
            begin = phase["end_step"]

        def of(phase: Any, start: float) -> Any:
            return ANNEALING[self._anneal_func_type](own[phase[f"start_{what}"]], own[phase[f"end_{what}"]],
                                                     (step - start) / (phase["end_step"] - start))

        def after(i: int) -> Any:
            phase = self._schedule_phases[i]
            if i == len(starts) - 1:
                return of(phase, starts[i])
            return choose(step <= phase["end_step"], lambda: of(phase, starts[i]), lambda: after(i + 1))

        return after(0)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        if not isinstance(step, Tensor):
            self.check_step(step)
        return self._annealed(step, group, "lr")

    def momentum_at(self, step: Any, group: int) -> Any:
        return self._annealed(step, group, "momentum")

    def check_step(self, step: int) -> None:
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
