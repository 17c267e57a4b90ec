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
    """The signatures of the form, or those that rows.py gives a function that is none."""
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


def _with_function(name: str, names: set[str]) -> bool:
    """Whether it is tried with the function of its name, as methods and in-place functions are."""
    last = name.removeprefix("Tensor.")
    if "." in last.replace("nn.functional.", ""):
        return False
    bases = {last, last.removesuffix("_")} - ({name} if not name.startswith("Tensor.") else set())
    return any(base in names and generated(base) for base in bases)


def covered(name: str, names: set[str]) -> bool:
    """Whether its cases, or those of the function of its name, try it."""
    return generated(name) or _with_function(name, names)


def ops(library: Any) -> list[str]:
    """The names with cases of their own: a method that is a function too is tried with the function."""
    names = exported(library)
    return [n for n in names if generated(n) and not _with_function(n, set(names))]


def uncovered(library: Any) -> list[str]:
    names = exported(library)
    return [n for n in names if not covered(n, set(names)) and not not_generated(n)]
