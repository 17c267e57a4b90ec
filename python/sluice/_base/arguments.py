"""The types of arguments of functions that are written in Python. Forms read theirs: python_bindings/src/form_args.cpp."""

from __future__ import annotations

import functools
from typing import Any, Callable

from sluice import _C


def _whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, complex) or hasattr(value, "__float__")


# By the words for them.
_TYPES: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda v: isinstance(v, _C.Tensor),
    "int": _whole,
    "float": lambda v: hasattr(v, "__float__"),
    "Number": _number,
    "bool": lambda v: isinstance(v, bool),
    "str": lambda v: isinstance(v, str),
    "None": lambda v: v is None,
    "dtype": lambda v: isinstance(v, _C.dtype) or v in (bool, int, float, complex),
    "ints": lambda v: isinstance(v, (list, tuple)) and all(map(_whole, v)),
    "numbers": lambda v: isinstance(v, (list, tuple)) and all(map(_number, v)),
    "tensors": lambda v: isinstance(v, (list, tuple)) and all(isinstance(x, _C.Tensor) for x in v),
}


def _refuse(function: Any, types: dict[str, str], args: tuple, keywords: dict) -> None:
    names = function.__code__.co_varnames[:function.__code__.co_argcount]
    for name, value in [*zip(names, args), *keywords.items()]:
        if name in types and not any(_TYPES[word](value) for word in types[name].split("|")):
            raise TypeError(f"{function.__name__}(): argument '{name}' must be {types[name].replace('|', ' or ')}, not "
                            f"{type(value).__name__}") from None


def typed(**types: str) -> Callable[[Any], Any]:
    """A failure because an argument has none of its types, as "Tensor|None", becomes a TypeError that names the argument."""

    def decorate(function: Any) -> Any:

        @functools.wraps(function)
        def call(*args, **keywords):
            try:
                return function(*args, **keywords)
            except Exception:
                _refuse(function, types, args, keywords)
                raise

        return call

    return decorate
