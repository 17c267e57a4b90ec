"""Private modules of torch that packages are known to import, as far as these use them."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

from sluice import compiler


def _module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name, "What packages use of torch's private module of this name.")
    vars(made).update(members)
    return made


class _Nodes:
    """Containers by type: how they are taken apart and put together."""

    def __init__(self) -> None:
        self.known: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {
            dict: (lambda d: (list(d.values()), list(d)), lambda values, keys: dict(zip(keys, values))),
            list: (lambda items: (list(items), None), lambda values, _: list(values)),
            tuple: (lambda items: (list(items), None), lambda values, _: tuple(values))}

    def register(self, cls: type, flatten_fn: Any, unflatten_fn: Any, **kwargs: Any) -> None:
        self.known[cls] = flatten_fn, unflatten_fn

    def map(self, function: Any, tree: Any, *rests: Any) -> Any:
        """The tree with function(leaf, ...) for each leaf."""
        if type(tree) not in self.known:
            return function(tree, *rests)
        flatten, unflatten = self.known[type(tree)]
        values, context = flatten(tree)
        others = [flatten(rest)[0] for rest in rests]
        return unflatten([self.map(function, *items) for items in zip(values, *others)], context)

    def leaves(self, tree: Any) -> list[Any]:
        found: list[Any] = []
        self.map(found.append, tree)
        return found


_nodes = _Nodes()
_flatten_dict, _unflatten_dict = _nodes.known[dict]

PRIVATE = {
    "torch.utils._pytree": _module(
        "torch.utils._pytree", register_pytree_node=_nodes.register, _register_pytree_node=_nodes.register, tree_map=_nodes.map,
        tree_leaves=_nodes.leaves, _dict_flatten=_flatten_dict, _dict_unflatten=_unflatten_dict, Context=object),
    "torch._dynamo": _module("torch._dynamo", is_compiling=compiler.is_compiling, disable=compiler.disable),
}
