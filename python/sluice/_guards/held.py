"""Guards: what there was, by the place where it lay, and whether it is so still."""

from __future__ import annotations

import contextvars
import functools
from typing import Any, Iterator

from sluice import _C
from sluice._C import Tensor

from sluice._guards.values import (copy_of, differs, fill, in_class, is_compared_by_engine, is_plain, MISSING, same_items, snapshot,
                                   text_of)


class Held:
    """Values and identities. Comparing is by address, in C++ (`SameObjects`); only where an address differs does Python look at values.

    The object that has the guards may be one of those that are watched: it is never held, its attributes have None in place of
    their dict, and its dict is given to each comparison.
    """

    def __init__(self) -> None:
        # (where, dict or None, name, what lay there, what it is compared with: of lists and dicts of plain values a copy)
        self._entries: list[tuple[str, Any, str, Any, Any]] = []
        self._cells: list[tuple[str, Any, Any]] = []
        self._classes: list[tuple[str, type, str, Any]] = []  # (where, class, name, what it or a base has under that name)
        self._functions: list[tuple[str, Any, Any]] = []  # (where, function, its code and defaults)
        self._typed: list[tuple[str, Any, type]] = []  # (where, object, its class)
        self._parts: list[tuple[str, Any, Any, Any]] = []  # (where, object, what gives a part of it that no dict has, the part)
        self._containers: list[tuple[str, Any, Any]] = []  # (where, container, copy of it)
        self._same: Any = None  # SameObjects, once all was found to be as it was

    def entry(self, where: str, table: Any, name: str, content: Any) -> None:
        self._entries.append((where, table, name, content, copy_of(content) if _is_copied(content) else content))

    def container(self, where: str, thing: Any) -> None:
        if not isinstance(thing, tuple):
            self._containers.append((where, thing, snapshot(thing)))

    # Comparison.

    def changed(self, own: Any = None) -> str | None:
        """Names what is not as it was; None: all is. own: the dict of the object that has this."""
        if self._same is None or not self._same.hold(own):
            same = _C.SameObjects(own=own, **self.objects(own))
            where = self.difference(own)
            if where is not None:
                return where
            self._same = same  # perhaps other objects of the same value
        return self.difference_of_parts()

    def difference(self, own: Any = None) -> str | None:
        """As changed(), with each value looked at, but for what difference_of_parts() looks at."""
        for where, now, then, copied in self._now(own):
            if now is not then and (differs(now, then) or _is_copied(then) and not copied):
                return where
        return next((where for where, thing, copy in self._containers if not same_items(thing, copy)), None)

    def difference_of_parts(self) -> str | None:
        """The difference in what SameObjects cannot tell."""
        for where, _, read, then in self._parts:
            now = read()
            if now is not then and (differs(now, then) or _is_copied(then)):
                return where
        for where, thing, copy in self._containers:
            if not is_compared_by_engine(thing) and not same_items(thing, copy):
                return where
        return None

    def has_parts(self) -> bool:
        """Whether difference_of_parts() has anything to look at."""
        return bool(self._parts) or any(not is_compared_by_engine(thing) for _, thing, _ in self._containers)

    def has_own(self) -> bool:
        """Whether something is of the object that has this."""
        return any(table is None for _, table, *_ in self._entries)

    def objects(self, own: Any = None) -> dict[str, Any]:
        """The arguments of SameObjects: what is there now."""
        valued = [_at(own, table, name) for _, table, name, _, then in self._entries if _is_copied(then)]
        return {"entries": [(table, name) for _, table, name, _, _ in self._entries],
                "cells": [cell for _, cell, _ in self._cells],
                "classes": [(cls, name) for _, cls, name, _ in self._classes],
                "typed": [thing for _, thing, _ in self._typed],
                "functions": [function for _, function, _ in self._functions],
                "containers": [thing for _, thing, _ in self._containers if is_compared_by_engine(thing)] +
                              [thing for thing in valued if _is_copied(thing)]}

    def identities(self) -> Any:
        """SameObjects that hold for as long as all is as it was; None where identities say too little."""
        return None if self.has_parts() or self.changed() else self._same

    def _now(self, own: Any = None) -> Iterator[tuple[str, Any, Any, bool]]:
        """(where, what is there now, what was there, whether that is a copy: another list of equal items is none that was copied)."""
        for where, table, name, content, then in self._entries:
            yield where, _at(own, table, name), then, content is not then
        for where, cell, then in self._cells:
            yield where, content_of(cell), then, False
        for where, cls, name, then in self._classes:
            yield where, in_class(cls, name), then, False
        for where, thing, cls in self._typed:
            yield where, type(thing), cls, False
        for where, function, then in self._functions:
            for now, part in zip(made_of(function), then):
                yield where, now, part, False

    def drop_changed(self, own: Any) -> None:
        """Drops the guards on what another trace has changed meanwhile."""
        gone = {id(held[1]) for held in self._containers if not same_items(held[1], held[2])}
        self._containers = [held for held in self._containers if id(held[1]) not in gone]
        self._entries = [e for e in self._entries if not differs((own if e[1] is None else e[1]).get(e[2], MISSING), e[4])]
        self._cells = [held for held in self._cells if not differs(content_of(held[1]), held[2])]
        self._parts = [held for held in self._parts if not differs(held[2](), held[3])]

    def drop_what(self, other: Any) -> None:
        """Drops the guards that other guards hold as well."""
        entries = {(id(table), name) for _, table, name, *_ in other._entries}
        functions, cells = {id(f) for _, f, _ in other._functions}, {id(cell) for _, cell, _ in other._cells}
        classes, typed = {(cls, name) for _, cls, name, _ in other._classes}, {id(thing) for _, thing, _ in other._typed}
        containers, parts = {id(thing) for _, thing, _ in other._containers}, {id(thing) for _, thing, _, _ in other._parts}
        self._entries = [e for e in self._entries if (id(e[1]), e[2]) not in entries]
        self._functions = [f for f in self._functions if id(f[1]) not in functions]
        self._cells = [c for c in self._cells if id(c[1]) not in cells]
        self._classes = [c for c in self._classes if (c[1], c[2]) not in classes]
        self._typed = [t for t in self._typed if id(t[1]) not in typed]
        self._containers = [c for c in self._containers if id(c[1]) not in containers]
        self._parts = [p for p in self._parts if id(p[1]) not in parts]

    # Repair and words.

    def restore(self) -> None:
        """Puts back what was there when this was made."""
        for _, table, name, content, then in self._entries:
            if content is MISSING:
                table.pop(name, None)
                continue
            if table.get(name, MISSING) is not content:
                table[name] = content
            if content is not then and not same_items(content, then):
                fill(content, then)
        for _, cell, then in self._cells:
            if then is not MISSING:
                cell.cell_contents = then
        for _, cls, name, then in self._classes:
            if then is not in_class(cls, name):
                delattr(cls, name) if then is MISSING else setattr(cls, name, then)
        for _, thing, read, then in self._parts:
            if isinstance(thing, contextvars.ContextVar):
                if then is not MISSING and read() is not then:
                    thing.set(then)
            elif isinstance(read, functools.partial) and then is not MISSING and read() is not then:
                setattr(thing, read.args[1], then)
        for _, thing, copy in self._containers:
            if not same_items(thing, copy):
                fill(thing, copy)

    def guards(self) -> list[str]:
        """In words."""
        values = [*((where, then) for where, _, _, _, then in self._entries), *((where, then) for where, _, _, then in self._classes),
                  *((where, then) for where, _, _, then in self._parts)]
        return ([f"{where} is {_short(then)}" for where, then in values if then is not MISSING] +
                [f"{where} is {_short(then)}" for where, _, then in self._cells] +
                [f"{where} has the same code and defaults" for where, _, _ in self._functions] +
                [f"{where} has the same items" for where, _, _ in self._containers])

    def texts(self) -> dict[str, set[str]]:
        """Plain values by the name under which code reads them, as texts that are the same in every process."""
        found: dict[str, set[str]] = {}
        values = [(where, then) for where, _, _, _, then in self._entries] + [(where, then) for where, _, then in self._cells]
        values += [(where, then) for where, _, _, then in self._classes]
        for where, then in values:
            if copy_of(then) is not MISSING and not isinstance(then, Tensor):
                found.setdefault(where.rpartition(".")[2], set()).add(text_of(then))
        return found


def _is_copied(thing: Any) -> bool:
    """Whether it is compared by the values in it."""
    return type(thing) in (list, dict, set) and copy_of(thing) is not MISSING


def _at(own: Any, table: Any, name: str) -> Any:
    found = own if table is None else table
    return MISSING if found is None else found.get(name, MISSING)


def made_of(function: Any) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _short(thing: Any) -> str:
    return repr(thing)[:60] if is_plain(thing) else f"the same {type(thing).__name__}"
