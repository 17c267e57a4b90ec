"""Optimizer: parameter groups, state, and step numbers as tensors, so that a step can be part of a plan."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import Any

import sluice
from sluice._C import Tensor
from sluice._global import fill
from sluice._trace import state as trace_state
from sluice.nn.utils import clip_grad_norm_
from sluice.sbp import broadcast


def clear_grad(p: Any, set_to_none: bool = True) -> None:
    if p.grad is None:
        return
    if set_to_none:
        p.grad = None
    else:
        with sluice.no_grad():
            p.grad.zero_()


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class Optimizer:
    """Base of optimizers. Subclasses define `_update()` and the tensors of a parameter's state."""

    def __init__(self, params: Any, defaults: Any) -> None:
        if isinstance(params, Tensor):
            raise TypeError(f"{type(self).__name__}: params must be an iterable of Tensors or dicts: got a Tensor")
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        self._lr_cache = {}
        self.homes = {}  # by parameter: the placement where graphs update it, where that is not its own
        groups = list(params)
        if not groups:
            raise ValueError(f"{type(self).__name__}: got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, group: Any) -> None:
        group = dict(group)
        params = group["params"]
        group["params"] = [params] if isinstance(params, Tensor) else list(params)
        for p in group["params"]:
            if isinstance(p, tuple):
                raise TypeError("optimizer: named parameters are not supported; pass module.parameters()")
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if any(id(p) in known for p in group["params"]):
            raise ValueError("some parameters appear in more than one parameter group")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        self._check(group)
        self.param_groups.append(group)

    def _check(self, group: Any) -> None:
        if not isinstance(group["lr"], Tensor) and group["lr"] < 0:
            raise ValueError(f"Invalid learning rate: {group['lr']}")
        if group.get("weight_decay", 0) < 0:
            raise ValueError(f"Invalid weight_decay value: {group['weight_decay']}")

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                clear_grad(p, set_to_none)

    # Learning rates are 0-d tensors, written when the number in the group changes: plans read them as variables.

    def lr_tensor(self, index: int) -> Any:
        lr = self.param_groups[index]["lr"]
        if isinstance(lr, Tensor):
            return lr
        number, tensor = self._lr_cache.get(index, (None, None))
        if tensor is None:
            tensor = sluice.tensor(float(lr), dtype=sluice.float64)
        elif number != lr:
            tensor.fill_(float(lr))
        self._lr_cache[index] = (lr, tensor)
        return tensor

    def refresh_lr(self) -> None:
        for index in range(len(self.param_groups)):
            self.lr_tensor(index)

    def init_state(self) -> None:
        """Makes the state of every parameter now; otherwise that happens at its first step."""
        with sluice.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.requires_grad and not self.state[p]:
                        self._init_state(group, p, self.state[p])

    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with sluice.enable_grad():
                loss = closure()
        with sluice.no_grad():
            if trace_state.stepped is None:
                self.step_with([self.lr_tensor(i) for i in range(len(self.param_groups))])
            else:
                trace_state.stepped.append(self)
                with trace_state.batches.update(self):
                    self.step_with([self.lr_tensor(i) for i in range(len(self.param_groups))])
        return loss

    def step_with(self, lrs: Any) -> None:
        """One step with these learning rates, one scalar tensor for each group."""
        for group, lr in zip(self.param_groups, lrs):
            if group.get("clip_grad_max_norm") is not None:
                clip_grad_norm_(group["params"], group["clip_grad_max_norm"], group.get("clip_grad_norm_type", 2.0))
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                state = self.state[p]
                if not state:
                    self._init_state(group, p, state)
                if p in self.homes:
                    there = [t.to_global(self.homes[p], broadcast) for t in (p, grad)]
                    p._write(self._update(group, *there, state, lr).to_global(p.placement, broadcast))
                else:
                    p._write(self._update(group, p, grad, state, lr))

    def _init_state(self, group: Any, p: Any, state: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: _init_state() must be defined")

    def _update(self, group: Any, p: Any, grad: Any, state: Any, lr: Any) -> Any:
        """What p becomes; writes the state."""
        raise NotImplementedError(f"{type(self).__name__}: _update() must be defined")

    # State, in torch's format: parameters by number.

    def _numbers(self) -> Any:
        return {id(p): i for i, p in enumerate(chain.from_iterable(g["params"] for g in self.param_groups))}

    def state_dict(self) -> Any:
        numbers = self._numbers()
        groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": [numbers[id(p)] for p in g["params"]]}
                  for g in self.param_groups]
        return {"state": {numbers[id(p)]: dict(s) for p, s in self.state.items() if s}, "param_groups": groups}

    def load_state_dict(self, state_dict: Any) -> None:
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(own["params"]) for g, own in zip(groups, self.param_groups)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        params = {n: (own, p) for g, own in zip(groups, self.param_groups) for n, p in zip(g["params"], own["params"])}
        with sluice.no_grad():
            for number, saved in state_dict["state"].items():
                group, p = params[number]
                state = self.state[p]
                if not state:
                    self._init_state(group, p, state)
                for name, value in saved.items():
                    if isinstance(state.get(name), Tensor):
                        fill(state[name], sluice.as_tensor(value))  # graphs keep the tensors they were compiled with
                    else:
                        state[name] = value.detach().clone() if isinstance(value, Tensor) else value
        for g, own in zip(groups, self.param_groups):
            own.update({k: v for k, v in g.items() if k != "params"})

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {group[k]}" for k in sorted(group) if k != "params"]
        return "\n".join([*lines, ")"])


