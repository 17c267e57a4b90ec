"""Hyperparameters of parameter groups as tensors, which plans hold as variables.

A plan has the learning rates as variables, and so whatever else a schedule writes; all other hyperparameters are constants of
it. One that is found to have changed makes the graph compile again, and is a variable from then on.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C
from sluice._tensor import creation
from sluice._C import Tensor


def is_zero(x: Any) -> bool:
    """Whether `x` is the number 0, so that what is multiplied by it may be left out."""
    return not isinstance(x, Tensor) and x == 0


def like(x: Any, p: Tensor) -> Any:
    """A hyperparameter, or what was computed of some, to be combined with tensors of the dtype of `p`."""
    return x.to(p.dtype) if isinstance(x, Tensor) else x


def get(group: Any, path: str) -> Any:
    """The hyperparameter "lr", or the element "betas.0" of a tuple."""
    name, _, index = path.partition(".")
    return group[name][int(index)] if index else group[name]


def put(group: Any, path: str, value: Any) -> None:
    name, _, index = path.partition(".")
    if index:
        value = (*group[name][:int(index)], value, *group[name][int(index) + 1:])
    group[name] = value


def paths_of(name: str, value: Any) -> list[str]:
    return [f"{name}.{i}" for i in range(len(value))] if isinstance(value, (tuple, list)) else [name]


_OF_SCHEDULES = ("initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr")


class Numbers:
    """The hyperparameters of an optimizer's groups that are tensors, each with the number written last."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], tuple[Any, Tensor]] = {}
        self.varying: set[tuple[int, str]] = set()  # variables of plans besides the learning rates

    def tensor(self, groups: Any, index: int, path: str) -> Tensor:
        """A float64 scalar that has the hyperparameter's value now."""
        number = get(groups[index], path)
        if isinstance(number, Tensor):
            return number
        known, tensor = self._kept.get((index, path), (None, None))
        if tensor is None:
            tensor = creation.tensor(float(number), dtype=_C.float64)
        elif known is not number:  # rather than equal: a plan may have written another since
            tensor.fill_(float(number))
        self._kept[index, path] = (number, tensor)
        return tensor

    def variables(self, groups: Any) -> set[tuple[int, str]]:
        """The hyperparameters that plans have as variables."""
        tensors = {(i, path) for i, group in enumerate(groups) for name, value in group.items() if name != "params"
                   for path in paths_of(name, value) if isinstance(get(group, path), Tensor)}
        return {(i, "lr") for i, group in enumerate(groups) if "lr" in group} | self.varying | tensors

    def refresh(self, groups: Any, also: Any = ()) -> None:
        """Writes those that are others now."""
        for index, path in {*self._kept, *also}:
            if index < len(groups):
                self.tensor(groups, index, path)

    def pull(self, groups: Any, places: Any) -> None:
        """Takes over what plans have written to these, as numbers of their groups. Waits for the steps under way."""
        for index, path in places:
            _, tensor = self._kept.get((index, path), (None, None))
            if tensor is not None:
                number = tensor.item()
                put(groups[index], path, number)
                self._kept[index, path] = (number, tensor)

    def views(self, groups: Any, in_plan: bool) -> list[Any]:
        """The groups, with tensors for the learning rates, and in a plan for all that are its variables."""
        views = [dict(group) for group in groups]
        for index, path in self.variables(groups) if in_plan else [(i, "lr") for i, g in enumerate(groups) if "lr" in g]:
            put(views[index], path, self.tensor(groups, index, path).to(_C.float64))
        return views

    def constants(self, groups: Any, defaults: Any, variables: Any, scheduled: bool) -> list[dict[str, Any]]:
        """By group, the hyperparameters that plans have as they are when they are compiled."""
        return [{path: get(group, path) for name, value in group.items()
                 if name in defaults or name.startswith("clip_grad") or scheduled and name in _OF_SCHEDULES
                 for path in paths_of(name, value) if (i, path) not in variables} for i, group in enumerate(groups)]

    def vary(self, index: int, path: str, was: Any, now: Any, defaults: Any, structural: Any) -> None:
        """A constant of a plan has changed: if that can be, it is a variable from now on."""
        name = path.partition(".")[0]
        if is_number(was) and is_number(now) and name in defaults and name not in structural:
            self.varying.add((index, path))


def is_number(x: Any) -> bool:
    return isinstance(x, (Integral, float)) and not isinstance(x, bool)
