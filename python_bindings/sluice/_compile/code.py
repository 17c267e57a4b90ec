"""What code says of what it reads, found without running it."""

from __future__ import annotations

import dis
import functools
import sysconfig
import types

from sluice._compile.breaks import is_ours

_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def is_users(file: str) -> bool:
    """Code of the user, not of a library."""
    if file == "<string>":  # of `python -c`, and what exec() was given
        return True
    return bool(file) and not is_ours(file) and not file.startswith(_LIBRARY) and "site-packages" not in file


@functools.lru_cache(maxsize=4096)
def reads_grad(code: types.CodeType) -> int:
    """The line where code reads `.grad` of something that is not called autograd, func or torch; 0: it does not."""
    before, line = None, 0
    for i in dis.get_instructions(code):
        line = getattr(i, "line_number", i.starts_line) or line  # Python 3.13 says it otherwise
        if i.opname == "LOAD_ATTR" and i.argval == "grad" and before not in ("autograd", "func", "torch", "sl", "sluice"):
            return line
        before = i.argval
    return next((found for c in code.co_consts if isinstance(c, types.CodeType) and (found := reads_grad(c))), 0)


@functools.lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Of code and what is defined in it: the globals that it reads, and all names of attributes."""
    read, attributes = set(), set()
    for i in dis.get_instructions(code):
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            read.add(i.argval)
        elif i.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.add(i.argval)
    for constant in code.co_consts:
        if isinstance(constant, str) and constant.isidentifier():
            attributes.add(constant)  # of getattr
        elif isinstance(constant, types.CodeType):
            more = names_of(constant)
            read |= more[0]
            attributes |= more[1]
    return frozenset(read), frozenset(attributes)
