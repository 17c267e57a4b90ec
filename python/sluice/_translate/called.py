"""Functions that translated code calls are translated, too, while a graph is traced: those of the user, and forward() of modules."""

from __future__ import annotations

import builtins
import types
import weakref
from typing import Any, Callable

from sluice._base.origins import is_users
from sluice._base.trace import running
from sluice._translate.told import told

_DIRECT = frozenset(vars(builtins))
_left: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()


def is_direct(name: str) -> bool:
    """Whether calls of this name are left as they are: of what Python has, some of which look at who calls them, as super()."""
    return name in _DIRECT


def leave(function: Callable[..., Any]) -> None:
    """Where it is called it is not translated."""
    _left.add(getattr(function, "__func__", function))


def called(function: Any) -> Any:
    """What is called in place of `function`."""
    translate = running.now.translate
    return function if translate is None else translate(function)


def in_place_of(function: Any, translate: Callable[..., Any]) -> Any:
    """A function of the user translated; all else as it is, and what cannot be translated: a condition that needs it says so."""
    if isinstance(function, types.MethodType):
        made = in_place_of(function.__func__, translate)
        return function if made is function.__func__ else types.MethodType(made, function.__self__)
    if not isinstance(function, types.FunctionType) or function in _left or not is_users(function.__code__.co_filename):
        return function
    if not hasattr(function, "__static__"):  # kept with the function, which its translation refers to
        try:
            function.__static__ = translate(function)  # type: ignore[attr-defined]
        except (SyntaxError, TypeError) as error:
            told(2, f"{function.__qualname__} is left as it is: {error}")
            function.__static__ = function  # type: ignore[attr-defined]
    return function.__static__  # type: ignore[attr-defined]
