"""The state of a program as a nest: its tensors by name, and everything else."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any, Iterator

from sluice._C import Tensor
from sluice._graph.graph import Graph
from sluice._tensor.creation import get_rng_state
from sluice.errors import TypeError, ValueError  # noqa: A004
from sluice.nn.modules.module import Module
from sluice.optim.optimizer import Optimizer

_MARK = "\0tensor"  # the one key of the dict that stands for a tensor


class Tree:
    """`tensors` by name, which is the path of keys to each; `rest`, the nest with a mark in the place of each tensor; and `stateful`,
    the objects by their keys whose state_dict() is part of it."""

    def __init__(self, state: Any, where: str) -> None:
        if not isinstance(state, dict) or not all(isinstance(key, str) and key for key in state):
            raise TypeError(f"{where}: state is {type(state).__name__}; must be a dict of what is saved by name, like "
                            "{'model': model, 'optimizer': optimizer, 'step': 3}")
        self._where, self.tensors, self.stateful = where, {}, {}
        self.rest = {key: self._taken(self._state_of(key, value), key) for key, value in state.items()}

    def _state_of(self, key: str, value: Any) -> Any:
        if isinstance(value, Tensor) or not hasattr(value, "state_dict"):
            return value
        self.stateful[key] = value
        if isinstance(value, Graph):
            if not value.is_compiled:  # what the first call makes is made now, so that all of it has a place
                value._prepare_updates()
            return {**value.state_dict(), "generator": get_rng_state()}
        if isinstance(value, Optimizer):
            value.init_state()
        return value.state_dict()

    def _taken(self, value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            if path in self.tensors:
                raise ValueError(f"{self._where}: two tensors have the name '{path}'; names are the keys on the way to them, with dots between")
            self.tensors[path] = value
            return {_MARK: path}
        if isinstance(value, dict):
            if _MARK in value:
                raise ValueError(f"{self._where}: '{path}' has a key {_MARK!r}, which stands for something else")
            items = {key: self._taken(item, f"{path}.{key}") for key, item in value.items()}
            return type(value)(items) if type(value) in (Counter, OrderedDict) else items
        if type(value) in (list, tuple):
            return type(value)(self._taken(item, f"{path}.{i}") for i, item in enumerate(value))
        return value


def restored(rest: Any, tensors: dict[str, Any]) -> Any:
    """The nest with its tensors."""
    if isinstance(rest, dict):
        if list(rest) == [_MARK]:
            return tensors[rest[_MARK]]
        items = {key: restored(value, tensors) for key, value in rest.items()}
        return type(rest)(items) if type(rest) in (Counter, OrderedDict) else items
    if isinstance(rest, (list, tuple)):
        return type(rest)(restored(item, tensors) for item in rest)
    return rest


def model_prefix(state: dict[str, Any]) -> str | None:
    """How the names of the model's tensors begin: of the module 'model', or else of the only one there is, also in a graph."""
    if isinstance(state.get("model"), Module):
        return "model."
    found = list(_modules(state))
    return found[0] if len(found) == 1 else None


def _modules(state: dict[str, Any]) -> Iterator[str]:
    for key, value in state.items():
        if isinstance(value, Module):
            yield f"{key}."
        elif isinstance(value, Graph):
            yield from (f"{key}.modules.{block}." for block in value._blocks)
