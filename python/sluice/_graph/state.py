"""All that a graph's next steps depend on, besides its arguments and its program: to be saved, and to be gone on with elsewhere."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Iterator

from sluice._C import Tensor
from sluice._base.parts import dense_parts
from sluice._tensor.creation import as_tensor, get_rng_state, set_rng_state
from sluice._tensor.global_tensors import fill
from sluice._base.grad_mode import no_grad

_PARTS = ("modules", "optimizers", "schedules", "tensors")
_MAY_BE_THERE = ("grad_scaler", "generator")


def _tensors(graph: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of attributes that are neither parameters nor buffers, which build() may capture."""
    yield from dense_parts(vars(graph).items())
    for name, module in graph._named_modules():
        for attribute, value in dense_parts(vars(module).items()):
            yield f"{name}.{attribute}", value


def saved(graph: Any) -> dict[str, Any]:
    """The tensors are the graph's own, as in torch; reading them waits for the steps under way."""
    updates = graph._updates
    state: dict[str, Any] = {"modules": OrderedDict((name, block.state_dict()) for name, block in graph._blocks.items()),
                             "optimizers": [optim.state_dict() for optim, _ in updates.pairs],
                             "schedules": [schedule and schedule.state_dict() for _, schedule in updates.pairs],
                             "tensors": OrderedDict((name, t.detach()) for name, t in _tensors(graph))}
    if updates.scaler is not None:
        state["grad_scaler"] = updates.scaler.state_dict()
    if graph._captured is not None and any(name.startswith("generator") for name in graph._captured.variables()):
        state["generator"] = get_rng_state()
    return state


def load(graph: Any, state: Any, strict: bool) -> None:
    """Everything is looked at before anything is written, but for what modules and optimizers check themselves."""
    updates = graph._updates
    if not hasattr(state, "keys") or not all(part in state for part in _PARTS):
        raise TypeError(f"load_state_dict: graph '{graph.name}': got {_described(state)}; must be what state_dict() of a "
                        f"graph gave, a dict of {', '.join(_PARTS)}")
    own = {"modules": dict(graph._blocks), "tensors": dict(_tensors(graph))}
    wrong = [f"{kind} key(s) in {part}: {', '.join(map(repr, names))}" for part, there in own.items()
             for kind, names in (("Missing", there.keys() - state[part].keys()),
                                 ("Unexpected", state[part].keys() - there.keys())) if names]
    wrong += [f"Unexpected key(s): '{name}'" for name in state if name not in (*_PARTS, *_MAY_BE_THERE)]
    if strict and wrong:
        raise RuntimeError(f"Error(s) in loading state_dict for {type(graph).__name__}:\n\t" + "\n\t".join(wrong))
    for part, there in (("optimizers", [o for o, _ in updates.pairs]), ("schedules", [s for _, s in updates.pairs])):
        if len(state[part]) != len(there) or any((a is None) != (b is None) for a, b in zip(state[part], there)):
            raise RuntimeError(f"load_state_dict: graph '{graph.name}' has {_listed(there)} as {part}, and the state has "
                               f"{sum(s is not None for s in state[part])} of {len(state[part])}; add the same with add_optimizer() first")
    if (updates.scaler is None) != ("grad_scaler" not in state):
        raise RuntimeError(f"load_state_dict: graph '{graph.name}' has {'no' if updates.scaler is None else 'a'} gradient scaler, "
                           "other than the state; call set_grad_scaler() in the same way first")
    for name in own["tensors"].keys() & state["tensors"].keys():
        there, given = own["tensors"][name], state["tensors"][name]
        if there._shape != tuple(given.shape):
            raise RuntimeError(f"load_state_dict: graph '{graph.name}': size mismatch for {name}: got {tuple(given.shape)}; the tensor has "
                               f"{there._shape}")
    for name in own["modules"].keys() & state["modules"].keys():
        own["modules"][name].load_state_dict(state["modules"][name], strict)
    for (optim, schedule), optim_state, schedule_state in zip(updates.pairs, state["optimizers"], state["schedules"]):
        optim.load_state_dict(optim_state)
        if schedule is not None:
            schedule.load_state_dict(schedule_state)
    with no_grad():
        for name in own["tensors"].keys() & state["tensors"].keys():
            fill(own["tensors"][name], as_tensor(state["tensors"][name]))
    if updates.scaler is not None:
        updates.scaler.load_state_dict(state["grad_scaler"])
    if "generator" in state:
        set_rng_state(as_tensor(state["generator"]))


def _described(state: Any) -> str:
    return f"a dict with {', '.join(map(repr, list(state)[:5]))}" if hasattr(state, "keys") else type(state).__name__


def _listed(objects: Any) -> str:
    return ", ".join(type(o).__name__ for o in objects) or "none"
