"""What the modules here are made of: modules of names, and names that can be imported but not used."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn


def module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name, "What packages use of torch's private module of this name.")
    vars(made).update(members)
    return made


def same(thing: Any) -> Any:
    """A mark for tools that Sluice has not."""
    return thing


def marks(*args: Any, **kwargs: Any) -> Any:
    """A decorator with arguments that is such a mark."""
    return same


class Nothing:
    """A scope that changes nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass


class _Refusing(type):
    """The type of names that refuse: their members are not there either, and the error says so."""

    __instead__ = ""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"{cls.__module__}.{cls.__qualname__}.{name}: {_lacking(cls.__instead__)}")


def _lacking(instead: str) -> str:
    return f"used, but Sluice has nothing of the kind (sluice.mock_torch); {instead or 'give a replacement in extra_dict'}"


def refusing(name: str, instead: str = "", base: type = object) -> Any:
    """A class that can be named, subscripted and derived from, and has no objects. `instead` says what to use.

    base: torch's name is an exception, say, or of another kind that Python asks for.
    """
    def __init__(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name}: {_lacking(instead)}")

    members = {"__init__": __init__, "__module__": name.rpartition(".")[0], "__doc__": f"{name} is not here.", "__instead__": instead,
               "__class_getitem__": classmethod(lambda cls, item: cls)}
    return _Refusing(name.rpartition(".")[2], (base,), members)
