"""Containers of parameters. Tensors in them become parameters; other values stay what they are."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from sluice._C import Tensor
from sluice.nn.modules._entries import Indexed, pairs_of
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter, is_lazy


def _entry(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _line(name: Any, value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    if is_lazy(value):
        return f"  ({name}): {value!r}"
    size = "x".join(map(str, value.shape))
    device = "" if value.is_cpu else f" ({value.device})"
    return f"  ({name}): {'Parameter' if isinstance(value, Parameter) else 'Tensor'} containing: [{value.dtype} of size {size}{device}]"


class ParameterList(Indexed, Module):
    """A list of parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            made = type(self)()
            return made.extend([self[i] for i in range(*idx.indices(len(self)))])
        return getattr(self, self._get_abs_string_index(idx))

    def __setitem__(self, idx: int, param: Any) -> None:
        setattr(self, self._get_abs_string_index(idx), _entry(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Any:
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, parameters: Iterable[Any]) -> Any:
        return self.extend(parameters)

    def append(self, value: Any) -> Any:
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Any:
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_line(i, p) for i, p in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters, in insertion order."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _key(key: str) -> str:
        if not isinstance(key, str):
            raise TypeError(f"Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                            f"'{type(key).__name__}')")
        return key

    def __getitem__(self, key: str) -> Any:
        if self._key(key) not in self._keys:
            raise AttributeError(f"'ParameterDict' object has no attribute '{key}'")
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, self._key(key), _entry(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[self._key(key)]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Any:
        return iter(self._keys)

    def __reversed__(self) -> Any:
        return reversed(list(self._keys))

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """A dict of the same parameters."""
        return ParameterDict([(key, self[key]) for key in self])

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Removes and returns the (key, parameter) that was put in last."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        return ParameterDict([(key, default) for key in keys])

    def keys(self) -> Any:
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        # torch sorts the keys of a plain dict here, and only here.
        pairs = pairs_of("ParameterDict", parameters)
        for key, value in sorted(pairs, key=operator.itemgetter(0)) if type(parameters) is dict else pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_line(key, value) for key, value in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other: ParameterDict) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other: ParameterDict) -> Any:
        self.update(other)
        return self
