"""Schedules whose steps are part of plans: the steps and what they set are variables, and the formulas are nodes."""

from __future__ import annotations

import functools
from typing import Any, Iterator

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.host_function import host_function
from sluice._base.trace import running
from sluice._base.grad_mode import no_grad
from sluice.optim import _numbers
from sluice.optim.lr_scheduler._formula import scalar
from sluice.optim.lr_scheduler.base import StandIn
from sluice.optim.lr_scheduler.composites import tree

_STEPS = ("last_epoch", "_step_count", "_last_lr", "_get_lr_called_within_step", "optimizer", "_schedulers", "_inner", "T_cur",
          "T_i")


class PlanSchedule:
    """The variables of a schedule. Graphs that have the same schedule share them."""

    def __init__(self, schedule: Any) -> None:
        self.schedule, self.optimizer = schedule, schedule.optimizer
        self.places = [(i, path) for i, _ in enumerate(self.optimizer.param_groups) for path in schedule.written()]
        # Each schedule that counts has a variable, and the number written to it last.
        self._counted = [s for s in tree(schedule) if "last_epoch" in s.__dict__]
        self._counters = [(s.last_epoch, scalar(s.last_epoch)) for s in self._counted]
        self._calls = 0  # since the numbers were read
        self.optimizer.numbers.varying.update(place for place in self.places if place[1] != "lr")

    def variables(self) -> Iterator[tuple[str, Tensor]]:
        for i, (_, counter) in enumerate(self._counters):
            yield "schedule_step" + (f".{i}" if i else ""), counter

    def watched(self) -> list[Any]:
        """Functions that give lists of attributes, of the same objects as long as no constant changes."""
        return [functools.partial(_attributes, s) for s in self._all()]

    def constants(self) -> list[dict[str, Any]]:
        """The constants that plans have of the schedule as it is when they are compiled."""
        kinds = (int, float, str, tuple, list, dict)
        return [{k: v for k, v in s.__dict__.items() if isinstance(v, kinds) and k not in _STEPS} for s in self._all()]

    def _all(self) -> list[Any]:
        return [*tree(self.schedule), *filter(None, [getattr(self.schedule, "_inner", None)])]

    def refresh(self) -> None:
        """Brings to the plan what was set by hand."""
        for i, (s, (known, counter)) in enumerate(zip(self._counted, self._counters)):
            if s.__dict__["last_epoch"] != known:
                counter.fill_(float(s.__dict__["last_epoch"]))
                self._counters[i] = (s.__dict__["last_epoch"], counter)

    def begin_call(self) -> None:
        self.schedule.check_step(self._counters[0][0] + self._calls + 1)
        self._calls += 1
        self.optimizer._driver = self

    def pull(self) -> None:
        """Takes over what plans have done so far as the numbers of the groups and of the schedule. Waits for the steps
        under way."""
        self._calls = 0
        self.optimizer.numbers.pull(self.optimizer._groups, self.places)
        for i, (s, (_, counter)) in enumerate(zip(self._counted, self._counters)):
            step = int(counter.item())
            self._counters[i] = (step, counter)
            s.pulled(step)
        self.schedule._last_lr = [group["lr"] for group in self.optimizer._groups]

    def trace(self) -> None:
        """A step. REQUIRES: inside a trace, after that of the optimizer."""
        with no_grad(), running.now.batches.once():
            there = StandIn(_Groups(self.optimizer))
            before = [(i, path, self.optimizer.numbers.tensor(self.optimizer._groups, i, path)) for i, path in self.places]
            for i, path, tensor in before:
                _numbers.put(there.param_groups[i], path, tensor.to(_C.float64) + 0.0)
            if any(s.verbose for s in tree(self.schedule)):
                rates = [group["lr"] for group in there.param_groups]
                host_function(self.schedule.print, self._counters[0][1] + 0.0, *rates, out=((), _C.float64))
            clone = self.schedule.stand_in(there)
            counted = [s for s in tree(clone) if "last_epoch" in s.__dict__]
            for s, (_, counter) in zip(counted, self._counters):
                s.last_epoch = counter + 0.0
                counter._write(s.last_epoch)  # a number that the step writes is not known while it is traced
            self._step(clone)
            for i, path, tensor in before:
                tensor._write(scalar(_numbers.get(there.param_groups[i], path)).to(tensor.dtype))
            for s, (_, counter) in zip(counted, self._counters):
                counter._write(scalar(s.__dict__["last_epoch"]))

    def _step(self, clone: Any) -> None:
        name = type(self.schedule).__name__
        own = [s for s in tree(clone) if not type(s).get_lr.__module__.startswith("sluice.")]
        had = [dict(s.__dict__) for s in own]
        try:
            clone.step()
        except (RuntimeError, TypeError, ValueError) as error:
            raise RuntimeError(f"{name}: the schedule cannot be part of a graph: {error}; write it with tensor operations on "
                               "the step, or call step() outside and do not give it to the graph") from error
        for s, old in zip(own, had):
            changed = [k for k, v in s.__dict__.items() if k not in _STEPS and v is not old.get(k)]
            if changed:
                raise RuntimeError(f"{name}: the schedule cannot be part of a graph: get_lr() changes its attribute "
                                   f"'{changed[0]}', which plans do not have; compute rates of last_epoch and the groups, or "
                                   "call step() outside")


def _attributes(schedule: Any) -> list[Any]:
    return [v for k, v in schedule.__dict__.items() if k not in _STEPS]


class _Groups:
    """The groups as they are, without asking for what plans have done."""

    def __init__(self, optimizer: Any) -> None:
        self.param_groups, self.defaults = optimizer._groups, optimizer.defaults


def in_plan(schedule: Any) -> PlanSchedule:
    """The variables of a schedule, which are made when a graph first has it."""
    if schedule._plan is None:
        schedule._plan = PlanSchedule(schedule)
    return schedule._plan
