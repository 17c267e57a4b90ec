"""Modules called with other parameters: torch.nn.utils.stateless, torch.func.functional_call."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

from sluice._C import Tensor
from sluice.nn.modules.module import Module


def _places(module: Module) -> dict[str, tuple[dict, str]]:
    """The place of every parameter and buffer by name, also by further ones of a shared tensor: the table and the key it is
    under."""
    places = {}
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for table in (owner._parameters, owner._buffers):
            for name, value in table.items():
                if value is not None:
                    places[f"{prefix}.{name}" if prefix else name] = table, name
    return places


@contextlib.contextmanager
def _replaced(module: Module, given: dict[str, Any], tie_weights: bool, strict: bool) -> Iterator[None]:
    places = _places(module)
    wanted = dict(given)
    if tie_weights:
        names: dict[int, list[str]] = {}
        for name, (table, key) in places.items():
            names.setdefault(id(table[key]), []).append(name)
        for tied in names.values():
            values = [given[name] for name in tied if name in given]
            if len({id(v) for v in values}) > 1:
                raise ValueError(f"functional_call got multiple values for keys {sorted(n for n in tied if n in given)}, which are tied. "
                                 "Consider using tie_weights=False")
            wanted.update((name, values[0]) for name in tied if values)
    for value in wanted.values():
        if not isinstance(value, Tensor):
            raise TypeError(f"{value} is not an instance of sluice.Tensor")
    unknown, missing = sorted(set(wanted) - set(places)), sorted(set(places) - set(wanted))
    if strict and (unknown or missing):
        lines = [f"{what} key(s): {', '.join(map(repr, names))}." for what, names in (("Unexpected", unknown), ("Missing", missing)) if names]
        raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(lines))
    for name in unknown:  # the path must be there at least
        module.get_submodule(name.rpartition(".")[0])
    before = []
    try:
        for name, (table, key) in places.items():
            if name in wanted:
                before.append((table, key, table[key]))
                table[key] = wanted[name]
        yield
    finally:
        for table, key, value in reversed(before):
            table[key] = value


def functional_call(module: Module, parameters_and_buffers: Any, args: Any = None, kwargs: Any = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """module(*args, **kwargs) with tensors by name in the place of its parameters and buffers; torch.func.functional_call.

    parameters_and_buffers: a dict, or several with different names. args: a tuple, or one argument. tie_weights: a tensor
    stands for all names of a shared parameter. strict: all names must be there, and no others.
    """
    if isinstance(parameters_and_buffers, dict):
        given = parameters_and_buffers
    elif isinstance(parameters_and_buffers, (list, tuple)):
        if not all(isinstance(d, dict) for d in parameters_and_buffers):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        keys = [key for d in parameters_and_buffers for key in d]
        repeated = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given = {key: value for d in parameters_and_buffers for key, value in d.items()}
    else:
        raise ValueError("Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
                         f"{type(parameters_and_buffers)}")
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, given, tie_weights, strict):
        return module(*args, **(kwargs or {}))
