"""Containers of modules and parameters."""

from __future__ import annotations

import operator
from typing import Any

from sluice._C import Tensor
from collections import OrderedDict
from itertools import chain

from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter


class _Indexed:
    """Integer indexing over an ordered table of entries named "0", "1", ..."""

    def _key(self, index: int) -> Any:
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range: {type(self).__name__} has {len(self)} entries")
        return str(index % len(self))


class Sequential(_Indexed, Module):
    """Calls its modules in order."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Tensor:
        for module in self._modules.values():
            input = module(input)
        return input

    def _name(self, index: int) -> Any:
        return list(self._modules)[int(self._key(index))]

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._name(index)]

    def __setitem__(self, index: int, module: Any) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: int) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name(index)]
        for name in names:
            delattr(self, name)
        self._modules = OrderedDict((str(i), m) for i, m in enumerate(self._modules.values()))

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Any:
        return iter(self._modules.values())

    def append(self, module: Any) -> Any:
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Any) -> Any:
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._modules = OrderedDict((str(i), m) for i, m in enumerate(modules))
        return self

    def extend(self, sequential: Any) -> Any:
        for module in sequential:
            self.append(module)
        return self


class ModuleList(_Indexed, Module):
    """A list of modules."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return self._modules[self._key(index)]

    def __setitem__(self, index: int, module: Any) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int) -> None:
        modules = list(self._modules.values())
        del modules[index]
        self._modules = OrderedDict((str(i), m) for i, m in enumerate(modules))

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Any:
        return iter(self._modules.values())

    def __iadd__(self, modules: Any) -> Any:
        return self.extend(modules)

    def __add__(self, other: Any) -> Any:
        return ModuleList(chain(self, other))

    def insert(self, index: int, module: Any) -> None:
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._modules = OrderedDict((str(i), m) for i, m in enumerate(modules))

    def append(self, module: Any) -> Any:
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Any) -> Any:
        for module in modules:
            self.append(module)
        return self


class _Dict:
    """A mapping over `self._table`."""

    @property
    def _table(self) -> Any:
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Any:
        return self._table[key]

    def __delitem__(self, key: Any) -> None:
        del self._table[key]

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Any:
        return iter(self._table)

    def __contains__(self, key: Any) -> bool:
        return key in self._table

    def keys(self) -> Any:
        return self._table.keys()

    def items(self) -> Any:
        return self._table.items()

    def values(self) -> Any:
        return self._table.values()

    def clear(self) -> None:
        self._table.clear()

    def pop(self, key: Any) -> Any:
        return self._table.pop(key)

    def update(self, entries: Any) -> None:
        for key, value in entries.items() if hasattr(entries, "items") else entries:
            self[key] = value


class ModuleDict(_Dict, Module):
    """A dict of modules, in insertion order."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    @property
    def _table(self) -> Any:
        return self._modules

    def __setitem__(self, key: Any, module: Any) -> None:
        self.add_module(key, module)


class ParameterList(_Indexed, Module):
    """A list of parameters; plain tensors become parameters."""

    def __init__(self, values: Any = None) -> None:
        super().__init__()
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self._parameters.values())[index])
        return self._parameters[self._key(index)]

    def __setitem__(self, index: int, value: Any) -> None:
        self._parameters[self._key(index)] = _as_parameter(value)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Any:
        return iter(self._parameters.values())

    def __iadd__(self, values: Any) -> Any:
        return self.extend(values)

    def append(self, value: Any) -> Any:
        self.register_parameter(str(len(self)), _as_parameter(value))
        return self

    def extend(self, values: Any) -> Any:
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"({i}): {_describe(p)}" for i, p in self._parameters.items())


class ParameterDict(_Dict, Module):
    """A dict of parameters, in insertion order; plain tensors become parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    @property
    def _table(self) -> Any:
        return self._parameters

    def __setitem__(self, key: Any, value: Any) -> None:
        self.register_parameter(key, _as_parameter(value))

    def update(self, entries: Any) -> None:
        # torch sorts a plain dict's keys here, and only here.
        super().update(sorted(entries.items()) if type(entries) is dict else entries)

    def extra_repr(self) -> str:
        return "\n".join(f"({k}): {_describe(p)}" for k, p in self._parameters.items())


def _as_parameter(value: Any) -> Any:
    return value if value is None or isinstance(value, Parameter) else Parameter(value)


def _describe(p: Any) -> Any:
    return f"Parameter containing: [{str(p.dtype).split('.')[-1]} of size {'x'.join(map(str, p.shape))}]"
