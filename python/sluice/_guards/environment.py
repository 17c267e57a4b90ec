"""The environment of a function, a module or a graph: what it reads besides its arguments, as far as its code says so."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice.nn.modules.module import Module

from sluice._guards.reach import join, Reach
from sluice._guards.values import ENTRIES, is_plain


class Environment(Reach):
    """Modules and tensors that code reaches, by name, and guards on all plain values and identities on the way there."""

    depth = 4
    most = 4096

    def __init__(self, function: Any, arguments: list[Any], known: Any = ()) -> None:
        read: frozenset[str] = frozenset()
        while True:  # till it is known which attributes code reads, wherever it is
            super().__init__(known=known)
            self.modules: dict[str, Module] = {}
            self._read = read
            self.reach(function, "")
            for i, thing in enumerate(arguments):
                self.reach(thing, f"argument{i}")
            if self._read == read:
                break
            read = self._read

    def module(self, module: Module, where: str, depth: int) -> None:
        name = where.replace(".", "_")
        if not any(module is m for m in self.modules.values()):
            self.modules[name] = module
        for inner in module.modules():
            self._seen.setdefault(id(inner), inner)
            for hook in (*inner._forward_pre_hooks.values(), *inner._forward_hooks.values()):
                self.reach(hook, join(where, "hook"), depth + 1)
            self.class_(type(inner), self._read)
            for attribute in sorted(vars(inner).keys() & {*self._read, "forward"} - {*ENTRIES}):
                value = vars(inner)[attribute]
                if isinstance(value, (Tensor, Module)):  # Watch sees another one, as it does of plain values
                    self.reach(value, join(where, attribute), depth + 1)
                elif not is_plain(value):
                    self._entry(join(where, attribute), vars(inner), attribute, depth + 1)

    def classes(self) -> set[type]:
        """The classes of the objects that code reaches, and those that it may make objects of."""
        return {cls for cls, _ in self._walked} | {cls for _, _, cls in self._typed}

    def of_graph(self, graph: Any, own: frozenset[str]) -> None:
        """Adds what code reads of the attributes of a graph, which is not held, but for its `own`."""
        self.class_(type(graph), self._read)
        for name in sorted(self._read & vars(graph).keys() - own):
            self.entry(f"{type(graph).__name__}.{name}", None, name, vars(graph)[name])
            self.reach(vars(graph)[name], name, 1)
