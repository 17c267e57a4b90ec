"""LRScheduler: what all schedules of learning rates have in common. torch.optim.lr_scheduler.LRScheduler."""

from __future__ import annotations

import copy
import types
import warnings
from numbers import Integral
from typing import Any

from sluice._C import Tensor
from sluice._base.trace import running
from sluice._base.job import state as job
from sluice.optim import _numbers
from sluice.optim.optimizer import Optimizer


class StandIn:
    """The groups of an optimizer for a copy of a schedule, which may do with them as it likes."""

    _opt_called = True

    def __init__(self, optimizer: Any) -> None:
        self.param_groups = [dict(group) for group in optimizer.param_groups]
        self.defaults = optimizer.defaults


def write(optimizer: Any, group: Any, key: str, value: Any) -> None:
    """A hyperparameter that is a tensor stays that tensor."""
    if isinstance(group[key], Tensor) and not isinstance(optimizer, StandIn):
        group[key].fill_(value)
    else:
        group[key] = value


def copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def rates(optimizer: Any, key: str = "lr") -> list[Any]:
    return [copied(group[key]) for group in optimizer.param_groups]


def per_group(name: str, optimizer: Any, value: Any) -> list[Any]:
    """`value` for each group, of a value for all of them or a list."""
    if isinstance(value, (list, tuple)):
        if len(value) != len(optimizer.param_groups):
            raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
                             f"param_groups has {len(optimizer.param_groups)}.")
        return list(value)
    return [value] * len(optimizer.param_groups)


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, (Optimizer, StandIn)):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


class LRScheduler:
    """Sets each group's lr, of what it is and the step; step 0 is made at construction.

    Subclasses define `lr_at()`, the closed formula of the step, or `next_lr()`, the lr of a step by that of the step before, or
    both; or, as with torch, `get_lr()`, the next rates by `self.last_epoch` and `self.optimizer.param_groups`. These
    formulas are used for eager steps and, on traced scalars, in plans.

    verbose: rank 0 prints each step and its lr; of a graph, the plan has an actor that does.
    """

    _is_initial = False
    _get_lr_called_within_step = False
    _not_saved: tuple[str, ...] = ("optimizer", "_plan", "verbose")
    _plan: Any = None  # once a graph has its steps: plan.PlanSchedule

    def __init__(self, optimizer: Any, last_epoch: Any = -1, verbose: bool = False) -> None:
        check_optimizer(optimizer)
        if not isinstance(last_epoch, Integral) or isinstance(last_epoch, bool):
            raise TypeError(f"{type(self).__name__}: last_epoch is {last_epoch!r}; must be an int")
        self.optimizer, self.verbose, self._get_lr_called_within_step = optimizer, verbose, False
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                               "last_epoch >= 0: load the optimizer's state first")
        self.base_lrs = rates(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._initial_step()

    @property
    def last_epoch(self) -> Any:
        """Steps made, also by graphs; reading it waits for those under way."""
        if "last_epoch" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute 'last_epoch'")
        _ = self.optimizer.param_groups  # brings what graphs have done
        return self.__dict__["last_epoch"]

    @last_epoch.setter
    def last_epoch(self, epoch: Any) -> None:
        self.__dict__["last_epoch"] = epoch

    # The schedule

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        """The learning rate of parameter group number `group` at `step`, a number or a traced float64 scalar."""
        raise NotImplementedError(f"{type(self).__name__}: lr_at() must be defined")

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        """The learning rate of a group at `step`, where it was `lr` at the step before."""
        return self.lr_at(self.base_lrs[group], step, group)

    def get_lr(self, step: Any = None) -> list[Any]:
        """The rates of any step, without side effects. Without one, those that follow from the rates there are, as in torch, which
        step() asks for; see get_last_lr()."""
        if step is not None:
            if step < 0:
                raise ValueError(f"{type(self).__name__}.get_lr: step is {step}; must be at least 0")
            return self._rates_of(step)
        if not self._get_lr_called_within_step:
            warnings.warn("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.", UserWarning,
                          stacklevel=2)
        return [self.next_lr(copied(group["lr"]), self.last_epoch, i) for i, group in enumerate(self.optimizer.param_groups)]

    def _rates_of(self, step: Any) -> list[Any]:
        if type(self).lr_at is not LRScheduler.lr_at:
            return [self.lr_at(base, step, i) for i, base in enumerate(self.base_lrs)]
        return self.simulated(step)

    def simulated(self, step: int) -> list[Any]:
        """The rates after so many steps from the beginning, step by step."""
        there = StandIn(self.optimizer)
        for group in there.param_groups:
            group["lr"] = copied(group["initial_lr"])
        clone = self.stand_in(there)
        clone.begin()
        for _ in range(step):
            clone.step()
        return [group["lr"] for group in there.param_groups]

    def stand_in(self, optimizer: StandIn) -> Any:
        """A copy that steps other groups."""
        clone = copy.copy(self)
        clone.__dict__.update(optimizer=optimizer, verbose=False, _plan=None)
        return clone

    def begin(self) -> None:
        """Does for a copy what construction does."""
        self.last_epoch = -1
        self._initial_step()

    def restart(self, zero: Any = 0) -> None:
        """Step 0, where another schedule has ended."""
        self._update_lr(zero)

    def multiplies(self) -> bool:
        """Whether each step multiplies the rate there is, and lr_at() the base, by what depends on the step alone."""
        return False

    def parts(self) -> list[Any]:
        """Those that it is made of."""
        return []

    def written(self) -> list[str]:
        """The hyperparameters that it sets: "lr", and "momentum" or "betas.0"."""
        return ["lr"]

    # Steps

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def step(self, epoch: Any = None) -> None:
        if self.in_build():
            return self._step_in_build()
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should call them in the "
                          "opposite order: otherwise the first value of the learning rate schedule is skipped", UserWarning,
                          stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn("The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
                          "possible. Please use `scheduler.step()` to step the scheduler.", UserWarning, stacklevel=2)
        self._update_lr(epoch)
        self.print_rates()

    def in_build(self) -> bool:
        return running.now.stepped is not None and not isinstance(self.optimizer, StandIn)

    def _step_in_build(self) -> None:
        """In a graph that has it, build() may say itself where its step is."""
        if not any(self is schedule for _, schedule in running.now.schedules):
            raise RuntimeError(f"{type(self).__name__}.step(): inside build() of a graph that does not have the schedule; "
                               "give it to the graph first, with add_optimizer(optimizer, lr_sch=schedule), or call step() "
                               "outside")
        if running.now.stepped.count(self):
            raise RuntimeError(f"{type(self).__name__}.step(): called twice inside build(); a call of the graph is one step")
        running.now.stepped.append(self)
        self._plan.trace()

    def _update_lr(self, epoch: Any = None) -> None:
        self._get_lr_called_within_step = True
        try:
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            values = self.get_lr() if epoch is None else self._closed_form()
        finally:
            self._get_lr_called_within_step = False
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            write(self.optimizer, group, "lr", lr)
        self._last_lr = rates(self.optimizer)

    def _closed_form(self) -> list[Any]:
        theirs = getattr(self, "_get_closed_form_lr", None)
        if theirs is not None:
            return theirs()
        if type(self).lr_at is LRScheduler.lr_at:
            return self.get_lr()
        return [self.lr_at(base, self.last_epoch, i) for i, base in enumerate(self.base_lrs)]

    def get_last_lr(self) -> list[Any]:
        """The rates of the groups now, also where graphs make the steps."""
        _ = self.optimizer.param_groups
        return self._last_lr

    def check_step(self, step: int) -> None:
        """Raises where the schedule has no such step."""

    def pulled(self, step: int) -> None:
        """After steps that graphs have made."""
        self._step_count += step - self.__dict__["last_epoch"]
        self.last_epoch = step
        self._last_lr = [copied(group["lr"]) for group in self.optimizer._groups]

    def print_rates(self) -> None:
        if self.verbose:
            self.print(self.last_epoch, *rates(self.optimizer))

    def print(self, step: Any, *lrs: Any) -> Any:
        if job.rank == 0:
            for i, lr in enumerate(lrs):
                print(f"step {int(step)}: the learning rate of group {i} is {float(lr):.6g}")
        return step

    # State

    def state_dict(self) -> dict[str, Any]:
        _ = self.optimizer.param_groups
        return {k: v for k, v in self.__dict__.items() if k not in self._not_saved}

    def load_state_dict(self, state_dict: Any) -> None:
        """The rates of groups are of the optimizer's state: load that, too."""
        _ = self.optimizer.param_groups
        self.__dict__.update({k: v for k, v in state_dict.items() if k not in self._not_saved})

    def __getstate__(self) -> Any:
        return {k: v for k, v in self.__dict__.items() if k != "_plan"}


def saved_function(function: Any) -> Any:
    """The state of a callable object; a function cannot be saved."""
    if function is None or isinstance(function, (types.FunctionType, types.BuiltinFunctionType)):
        return None
    return dict(function.__dict__)


def get(group: Any, path: str) -> Any:
    return _numbers.get(group, path)


def put(group: Any, path: str, value: Any) -> None:
    _numbers.put(group, path, value)
