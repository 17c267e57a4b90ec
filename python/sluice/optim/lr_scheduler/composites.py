"""Schedules made of others: torch.optim.lr_scheduler.SequentialLR and ChainedScheduler."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import tensor
from sluice.optim.lr_scheduler._formula import choose
from sluice.optim.lr_scheduler.base import LRScheduler, get, put, rates, StandIn, write
from sluice.optim.lr_scheduler.factors import MultiplicativeLR
from sluice.optim.lr_scheduler.plateau import ReduceLROnPlateau


class _Composite(LRScheduler):
    _not_saved = (*LRScheduler._not_saved, "_schedulers")

    def _take(self, schedulers: Any, optimizer: Any) -> None:
        name = type(self).__name__
        for i, s in enumerate(schedulers):
            if not hasattr(s, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(s, ReduceLROnPlateau):
                raise ValueError(f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to "
                                 f"be specified when calling `step`, but got one at index {i} in the given schedulers "
                                 "sequence.")
            if s.optimizer is not optimizer:
                raise ValueError(f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                                 f"{type(s).__name__} at index {i}, whose optimizer is another.")
        self._schedulers, self.optimizer = schedulers, optimizer

    def parts(self) -> list[Any]:
        return list(self._schedulers)

    def written(self) -> list[str]:
        return list(dict.fromkeys(path for s in self._schedulers for path in s.written()))

    def stand_in(self, optimizer: StandIn) -> Any:
        clone = super().stand_in(optimizer)
        clone._schedulers = [s.stand_in(optimizer) for s in self._schedulers]
        return clone

    def _begin_parts(self) -> None:
        for s in self._schedulers:
            s.begin()

    def check_step(self, step: int) -> None:
        for s in self._schedulers:
            s.check_step(step)

    def _rates_of(self, step: Any) -> list[Any]:
        """The formulas of the parts, where these are all that there is."""
        if self._closed():
            return [self.lr_at(base, step, i) for i, base in enumerate(self.base_lrs)]
        return self.simulated(step)

    @property
    def base_lrs(self) -> list[Any]:  # type: ignore[override]
        return rates(self.optimizer, "initial_lr")

    def _closed(self) -> bool:
        """Whether lr_at() gives what steps do."""
        return all(type(s).lr_at is not LRScheduler.lr_at and type(s).get_lr.__module__.startswith("sluice.")
                   and not isinstance(s, (_Composite, MultiplicativeLR)) for s in self._schedulers)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        for s, saved in zip(self._schedulers, state_dict["_schedulers"]):
            s.load_state_dict(saved)

    def pulled(self, step: int) -> None:
        self.last_epoch = step
        self._last_lr = [group["lr"] for group in self.optimizer._groups]


class SequentialLR(_Composite):
    """One schedule after another, each from its own step 0 on."""

    def __init__(self, optimizer: Any, schedulers: Any, milestones: Any, last_epoch: int = -1, verbose: bool = False) -> None:
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        self._take(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError("Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                             f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones "
                             f"to be equal to {len(milestones)}")
        self._milestones, self.verbose = milestones, verbose
        self.last_epoch = last_epoch + 1
        self._first_steps()

    def _first_steps(self) -> None:
        for group in self.optimizer.param_groups:
            write(self.optimizer, group, "lr", group["initial_lr"])
        _undo(self)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def begin(self) -> None:
        self._begin_parts()
        self.last_epoch = 0
        self._first_steps()

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        starts = [0, *self._milestones]
        lr = self._schedulers[0].lr_at(base_lr, step, group)
        for s, start in zip(self._schedulers[1:], starts[1:]):
            lr = choose(step >= start, lambda s=s, start=start: s.lr_at(base_lr, step - start, group), lr)
        return lr

    def step(self, epoch: Any = None) -> None:
        if self.in_build():
            return self._step_in_build()
        if epoch is not None:
            raise TypeError("SequentialLR.step() takes no epoch")
        self.last_epoch = self.last_epoch + 1
        if isinstance(self.last_epoch, Tensor):
            return self._step_traced()
        i = bisect_right(self._milestones, self.last_epoch)
        s = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            s.restart()
        else:
            s.step()
        self._last_lr = s.get_last_lr()
        self.print_rates()

    def restart(self, zero: Any = 0) -> None:
        if isinstance(zero, Tensor):
            raise NotImplementedError("SequentialLR: one that follows another schedule cannot start in a graph; make one "
                                      "SequentialLR of all, or call step() outside")
        self.begin()

    def check_step(self, step: int) -> None:
        for s, start, end in zip(self._schedulers, [0, *self._milestones], [*self._milestones, step + 1]):
            s.check_step(min(step, end - 1) - start)

    def _step_traced(self) -> None:
        """All parts step, each from what there was, and what counts is chosen."""
        t = self.last_epoch
        before = self._numbers()
        chosen: list[Any] = []
        for i, s in enumerate(self._schedulers):
            self._put_numbers(before)
            s.step()
            stepped = self._numbers()
            if i > 0:
                self._put_numbers(before)
                s.restart(tensor(0.0, dtype=_C.float64))
                first = t == self._milestones[i - 1]
                stepped = [choose(first, a, b) for a, b in zip(self._numbers(), stepped)]
                stepped = [choose(t >= self._milestones[i - 1], a, b) for a, b in zip(stepped, chosen)]
            chosen = stepped
        self._put_numbers(chosen)

    def _numbers(self) -> list[Any]:
        values = [get(group, path) for group in self.optimizer.param_groups for path in self.written()]
        return values + [s.__dict__["last_epoch"] for s in tree(self)[1:] if "last_epoch" in s.__dict__]

    def _put_numbers(self, values: list[Any]) -> None:
        rest = iter(values)
        for group in self.optimizer.param_groups:
            for path in self.written():
                put(group, path, next(rest))
        for s in tree(self)[1:]:
            if "last_epoch" in s.__dict__:
                s.last_epoch = next(rest)


class ChainedScheduler(_Composite):
    """Several schedules that step together: what each makes of the rate, the next has."""

    def __init__(self, schedulers: Any, optimizer: Any = None, verbose: bool = False) -> None:
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        self._take(schedulers, optimizer or schedulers[0].optimizer)
        self.verbose = verbose
        self._last_lr = rates(self.optimizer)

    def begin(self) -> None:
        self._begin_parts()
        self._last_lr = rates(self.optimizer)

    def _closed(self) -> bool:
        return super()._closed() and all(s.multiplies() for s in self._schedulers)

    def lr_at(self, base_lr: Any, step: Any, group: Any) -> Any:
        for s in self._schedulers:
            base_lr = s.lr_at(base_lr, step, group)
        return base_lr

    def step(self, epoch: Any = None) -> None:
        if self.in_build():
            return self._step_in_build()
        if epoch is not None:
            raise TypeError("ChainedScheduler.step() takes no epoch")
        for s in self._schedulers:
            s.step()
        self._last_lr = rates(self.optimizer)
        self.print_rates()

    def print_rates(self) -> None:
        if self.verbose:
            self.print(self._schedulers[0].last_epoch, *rates(self.optimizer))

    def restart(self, zero: Any = 0) -> None:
        for s in self._schedulers:
            s.restart(zero)


def _undo(schedule: Any) -> None:
    """Takes the steps back that schedules made when they were constructed."""
    if isinstance(schedule, _Composite):
        for part in schedule.parts():
            _undo(part)
    else:
        schedule.__dict__["last_epoch"] -= 1


def tree(schedule: Any) -> list[Any]:
    """A schedule and its parts, and theirs."""
    return [schedule, *(s for part in schedule.parts() for s in tree(part))]
