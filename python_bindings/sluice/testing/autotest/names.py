"""Every name that both libraries have, and where its cases come from."""

from __future__ import annotations

import inspect
from typing import Any, Iterator

import sluice
from sluice.testing.autotest.exceptions import not_generated
from sluice.testing.autotest.execute import resolve
from sluice.testing.autotest.modules import MODULES
from sluice.testing.autotest.rows import ROWS, SIGNATURES

SECTIONS = ("", "Tensor", "nn", "nn.functional", "linalg", "special", "fft")


def public(library: Any, section: str) -> Iterator[tuple[str, Any]]:
    try:
        owner = resolve(library, section) if section else library
    except (AttributeError, ImportError):
        return
    for name in dir(owner):
        if not name.startswith("_"):
            try:
                value = getattr(owner, name)
            except (AttributeError, RuntimeError, NotImplementedError):
                continue
            yield (f"{section}." if section else "") + name, value


def _counts(section: str, value: Any) -> bool:
    if section == "nn":
        return inspect.isclass(value)
    if section == "Tensor":
        return callable(value) or inspect.isdatadescriptor(value)
    return callable(value) and not inspect.isclass(value)


def exported(library: Any) -> list[str]:
    """The functions, methods, attributes and modules that `library`, which is torch, has as well."""
    names = []
    for section in SECTIONS:
        theirs = {n for n, v in public(library, section) if _counts(section, v)}
        names += [n for n, v in public(sluice, section) if n in theirs and _counts(section, v)]
    return sorted(names)


def signatures(name: str) -> list[str] | None:
    """Of the form, or of what rows.py says of a function that is none."""
    if name in SIGNATURES:
        return [SIGNATURES[name]]
    return list(getattr(resolve(sluice, name), "signatures", None) or ()) or None


def generated(name: str) -> bool:
    """Whether there are cases of its own."""
    if name in MODULES or name in SIGNATURES:
        return True
    if not_generated(name) or name.startswith("nn.") and name.count(".") == 1:
        return False
    return (name in ROWS and callable(ROWS[name])) or signatures(name) is not None


def covered(name: str) -> bool:
    """Whether its cases, or those of the function of its name, try it."""
    if generated(name):
        return True
    last = name.rpartition(".")[2]
    if name.startswith("Tensor.") or last.endswith("_"):  # tried with the function of that name
        base = last.removesuffix("_")
        return any(hasattr(sluice, b) and generated(b) for b in (last, base))
    return False


def ops(library: Any) -> list[str]:
    """The names with cases of their own: a method that is a function too is tried with the function."""
    return [n for n in exported(library) if generated(n) and not _with_function(n)]


def _with_function(name: str) -> bool:
    if name.startswith("Tensor."):
        last = name[7:]
        return any(hasattr(sluice, b) and generated(b) for b in (last, last.removesuffix("_")))
    return name.endswith("_") and "." not in name and hasattr(sluice, name[:-1]) and generated(name[:-1])


def uncovered(library: Any) -> list[str]:
    return [n for n in exported(library) if not covered(n) and not not_generated(n)]
