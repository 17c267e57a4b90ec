"""Modules as functions of their parameters: torch.func.functional_call."""

from __future__ import annotations

from typing import Any, Sequence

from sluice._C import Tensor


def _places(module: Any) -> dict[str, tuple[dict[str, Any], str]]:
    """Name -> (table, key) of every parameter and buffer, those that are shared under each of their names."""
    found = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for table in (part._parameters, part._buffers):
            for key, value in table.items():
                if value is not None:
                    found[f"{prefix}.{key}" if prefix else key] = (table, key)
    return found


def functional_call(module: Any, parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]], args: Any = None,
                    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False) -> Any:
    """Calls `module` with these tensors in place of its parameters and buffers of those names.

    What the module writes into its buffers is lost with the call, unless they are not replaced. tie_weights: a tensor
    also replaces its original under all other names. strict: every parameter and buffer must be given.
    """
    dicts = [parameter_and_buffer_dicts] if isinstance(parameter_and_buffer_dicts, dict) else list(parameter_and_buffer_dicts)
    given: dict[str, Tensor] = {}
    for one in dicts:
        if not isinstance(one, dict):
            raise ValueError(f"functional_call: Expected all elements of parameter_and_buffer_dicts to be dictionaries: got "
                             f"{type(one).__name__}")
        if both := set(one) & set(given):
            raise ValueError(f"functional_call: {sorted(both)} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given.update(one)
    places = _places(module)
    if unknown := [name for name in given if name not in places]:
        if strict:
            raise RuntimeError(f"functional_call: Unexpected key(s): {unknown}.")
        given = {name: t for name, t in given.items() if name in places}
    for name, t in given.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"functional_call: {name} is {type(t).__name__}; must be a Tensor")
    if tie_weights:
        given = _tied(given, places)
    if strict and (missing := [name for name in places if name not in given]):
        raise RuntimeError(f"functional_call: Missing key(s): {missing}.")
    before = {name: places[name][0][places[name][1]] for name in given}
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        for name, t in given.items():
            table, key = places[name]
            table[key] = t
        return module(*args, **(kwargs or {}))
    finally:
        for name, t in before.items():
            table, key = places[name]
            table[key] = t


def _tied(given: dict[str, Tensor], places: dict[str, tuple[dict[str, Any], str]]) -> dict[str, Tensor]:
    groups: dict[int, list[str]] = {}
    for name, (table, key) in places.items():
        groups.setdefault(table[key]._impl, []).append(name)
    tied = dict(given)
    for names in groups.values():
        values = {given[name]._impl: name for name in names if name in given}
        if len(values) > 1:
            raise ValueError(f"functional_call: got multiple values for keys {names}, which are tied; give one of them, or pass "
                             "tie_weights=False")
        for name in names if values else ():
            tied[name] = given[next(iter(values.values()))]
    return tied


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of several modules of one kind, stacked: for vmap over functional_call."""
    import sluice

    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1 or len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class and to have the same training/eval mode.")

    def stacked(kind: str) -> dict[str, Tensor]:
        columns = [dict(getattr(m, kind)()) for m in models]
        found = {}
        for name in columns[0]:
            column = [c[name] for c in columns]
            if len({t.requires_grad for t in column}) > 1:
                raise RuntimeError(f"stack_module_state: Expected {name} from each model to have the same .requires_grad")
            found[name] = sluice.stack([t.detach() for t in column]).requires_grad_(column[0].requires_grad)
        return found

    return stacked("named_parameters"), stacked("named_buffers")
