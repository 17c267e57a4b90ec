"""Finds in code what it reads, without running it."""

from __future__ import annotations

import dis
import functools
import sys
import types
from typing import Any, NamedTuple

from sluice._base.origins import is_ours as is_ours, is_standard as is_standard, is_users as is_users


def origin_of(cls: type) -> str:
    """The module of a class; of one of C code that does not say so, Python's core."""
    return cls.__module__ if isinstance(cls.__module__, str) else "builtins"


def is_users_class(cls: type) -> bool:
    return origin_of(cls) == "__main__" or is_users(getattr(sys.modules.get(origin_of(cls)), "__file__", "") or "")


def is_foreign(cls: type) -> bool:
    """Classes of Python's core and of ours."""
    return origin_of(cls).partition(".")[0] in ("sluice", "builtins")


@functools.lru_cache(maxsize=65536)
def reads_grad(code: types.CodeType) -> int:
    """The line where code reads `.grad` of something that is not called autograd, func or torch; 0: it does not."""
    before, line = None, 0
    for i in dis.get_instructions(code):
        line = getattr(i, "line_number", i.starts_line) or line  # Python 3.13 says it otherwise
        if i.opname == "LOAD_ATTR" and i.argval == "grad" and before not in ("autograd", "func", "torch", "sl", "sluice"):
            return line
        before = i.argval
    return next((found for c in code.co_consts if isinstance(c, types.CodeType) and (found := reads_grad(c))), 0)


class Names(NamedTuple):
    """The names in code: globals and cells that it reads, attributes, modules that it imports, and attributes that it names
    right behind a global or a cell, as in `name.attribute` and `getattr(name, "attribute")`."""

    read: frozenset[str]
    cells: frozenset[str]
    attributes: frozenset[str]
    imported: frozenset[str]
    pairs: frozenset[tuple[str, str]]


def names_of(code: types.CodeType, without: frozenset[Any] = frozenset()) -> Names:
    """The names of code and of what is defined in it, but for code `without`."""
    names = _own_names_of(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType) and constant not in without:
            names = Names(*map(frozenset.union, names, names_of(constant, without)))
    return names


_CELLS = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD", "IMPORT_FROM")


def _is_name(constant: Any) -> bool:
    return isinstance(constant, str) and constant.isidentifier()


@functools.lru_cache(maxsize=65536)
def _own_names_of(code: types.CodeType) -> Names:
    named: dict[str, set[Any]] = {kind: set() for kind in Names._fields}
    before = None
    for i in dis.get_instructions(code):
        if before is not None and (i.opname in (*_ATTRIBUTES, "STORE_ATTR") or i.opname == "LOAD_CONST" and _is_name(i.argval)):
            named["pairs"].add((before.argval, i.argval))
        before = i if i.opname in ("LOAD_GLOBAL", "LOAD_NAME", *_CELLS) else None
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            named["read"].add(i.argval)
        elif i.opname in _CELLS:
            named["cells"].add(i.argval)
        elif i.opname in _ATTRIBUTES:
            named["attributes"].add(i.argval)
        elif i.opname == "IMPORT_NAME":
            named["imported"].add(i.argval)
    named["attributes"].update(filter(_is_name, code.co_consts))  # of getattr
    return Names(**{kind: frozenset(names) for kind, names in named.items()})
