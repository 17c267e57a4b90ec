"""Optimizers' states in torch's format."""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from typing import Any

from sluice._C import Tensor
from sluice._tensor.creation import as_tensor, tensor
from sluice._tensor.global_tensors import fill
from sluice._base.grad_mode import no_grad


def _numbers(groups: Any) -> dict[int, int]:
    """By id of a parameter, its number."""
    numbers: dict[int, int] = {}
    for i, p in enumerate(chain.from_iterable(g["params"] for g in groups)):
        numbers.setdefault(id(p), i)
    return numbers


def saved(optimizer: Any) -> dict[str, Any]:
    """Keys that begin with an underscore are ours alone, and follow from the rest."""
    numbers = _numbers(optimizer.param_groups)
    groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": [numbers[id(p)] for p in g["params"]]}
              for g in optimizer.param_groups]
    state = {numbers[id(p)] if isinstance(p, Tensor) else p: {k: v for k, v in s.items() if not k.startswith("_")}
             for p, s in optimizer.state.items() if s}
    return {"state": state, "param_groups": groups}


def _tensor(value: Any) -> Any:
    """A tensor of ours, of one that may be torch's."""
    if isinstance(value, Tensor) or not hasattr(value, "__array__"):
        return value
    return as_tensor(value)


def _converted(p: Tensor, name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _converted(p, k, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_converted(p, name, v) for v in value)
    value = _tensor(value)
    if isinstance(value, Tensor):
        value = value.detach().clone()
        if name != "step" and value.ndim:
            value = value.to(p._device, p.dtype if p.dtype.is_floating_point else None)
    return value


def load(optimizer: Any, state_dict: Any) -> None:
    groups = state_dict["param_groups"]
    own_groups = optimizer.param_groups
    if len(groups) != len(own_groups):
        raise ValueError("loaded state dict has a different number of parameter groups")
    if any(len(g["params"]) != len(own["params"]) for g, own in zip(groups, own_groups)):
        raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
    for g, own in zip(groups, own_groups):
        own.update({k: _tensor(deepcopy(v) if not isinstance(v, Tensor) else v.clone()) for k, v in g.items() if k != "params"})
    params = {n: (own, p) for g, own in zip(groups, own_groups) for n, p in zip(g["params"], own["params"])}
    with no_grad():
        for p in [p for p in optimizer.state if id(p) not in {id(params[n][1]) for n in state_dict["state"] if n in params}]:
            del optimizer.state[p]
        for number, values in state_dict["state"].items():
            if number not in params:
                optimizer.state[number] = values
                continue
            group, p = params[number]
            state = optimizer.state[p]
            if not state:
                optimizer._lay_state(group, p, state)
            for name in [name for name in state if name not in values and not name.startswith("_")]:
                del state[name]
            for name, value in values.items():
                value, there = _tensor(value), state.get(name)
                if isinstance(there, Tensor) and not isinstance(value, Tensor) and isinstance(value, (int, float)):
                    value = tensor(float(value), dtype=there.dtype)  # steps that old checkpoints have as numbers
                if isinstance(there, Tensor) and isinstance(value, Tensor) and value._shape == there._shape:
                    fill(there, value)  # graphs keep the tensors they were compiled with
                else:
                    state[name] = _converted(p, name, value)
            optimizer._loaded(group, p, state, values)
