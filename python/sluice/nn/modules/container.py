"""Containers of modules, and those of parameters: parameter_containers.py."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import chain
from numbers import Integral
from typing import Any

from sluice.nn.modules._entries import Indexed, pairs_of
from sluice.nn.modules.module import Module
from sluice.nn.modules.parameter_containers import ParameterDict as ParameterDict, ParameterList as ParameterList


class Container(Module):
    """A module of the modules given by name; an older form of Module."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warnings.warn("`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. Subclass "
                      "that instead.",
                      FutureWarning, stacklevel=2)
        for name, module in kwargs.items():
            self.add_module(name, module)


class _Listed(Indexed, Module):
    """Modules in a row, called "0", "1", ... but where an OrderedDict named them."""

    def _name(self, idx: int) -> str:
        return list(self._modules)[int(self._get_abs_string_index(idx))]

    def _renumber(self, modules: Iterable[Module]) -> None:
        self._modules = OrderedDict((str(i), m) for i, m in enumerate(modules))

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._name(idx), module)

    def __delitem__(self, idx: int | slice) -> None:
        for name in list(self._modules)[idx] if isinstance(idx, slice) else [self._name(idx)]:
            delattr(self, name)
        self._renumber(list(self._modules.values()))

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Any:
        return iter(self._modules.values())

    def append(self, module: Module) -> Any:
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: int | slice) -> Any:
        """Removes and returns an entry, or those of a slice."""
        taken = self[key]
        del self[key]
        return taken


class Sequential(_Listed):
    """Calls its modules in order."""

    _takes_arrays = False  # its first module may

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self.add_module(str(name) if isinstance(name, int) else name, module)

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[self._name(idx)]

    def insert(self, index: int, module: Module) -> Any:
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def extend(self, sequential: Iterable[Module]) -> Any:
        for module in list(sequential):
            self.append(module)
        return self

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(other)

    @staticmethod
    def _times(other: int) -> int:
        if not isinstance(other, Integral):
            raise TypeError(f"unsupported operand type(s) for *: {Sequential} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {Sequential}")
        return other

    def __mul__(self, other: int) -> Any:
        return Sequential(*list(self) * self._times(other))

    def __rmul__(self, other: int) -> Any:
        return self * other

    def __imul__(self, other: int) -> Any:
        return self.extend(list(self) * (self._times(other) - 1))


class ModuleList(_Listed):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self._modules.values())[idx])
        return self._modules[self._get_abs_string_index(idx)]

    def __iadd__(self, modules: Iterable[Module]) -> Any:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> Any:
        return ModuleList(chain(self, other))

    def insert(self, index: int, module: Module) -> None:
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)

    def extend(self, modules: Iterable[Module]) -> Any:
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def __repr__(self) -> str:
        """Neighbours that read the same are shown once, with their number."""
        runs: list[list[Any]] = []
        for i, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        lines = [f"({a}): {text}" if a == b else f"({a}-{b}): {b - a + 1} x {text}" for a, b, text in runs]
        body = "".join("\n  " + line.replace("\n", "\n  ") for line in lines)
        return f"{self._get_name()}({body}\n)" if lines else f"{self._get_name()}()"


class ModuleDict(Module):
    """A dict of modules, in insertion order."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Any:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        self._modules.clear()

    def pop(self, key: str) -> Module:
        return self._modules.pop(key)

    def keys(self) -> Any:
        return self._modules.keys()

    def items(self) -> Any:
        return self._modules.items()

    def values(self) -> Any:
        return self._modules.values()

    def update(self, modules: Mapping[str, Module]) -> None:
        for key, module in pairs_of("ModuleDict", modules):
            self[key] = module
