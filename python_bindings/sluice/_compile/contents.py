"""What objects, containers and modules hold: whether it is what it was, and to put it back."""

from __future__ import annotations

import collections
import types
from typing import Any

from sluice.nn.graph.watch import _copy, _differs, _ENTRIES as TABLES, _is_plain, _NOTHING as MISSING
from sluice.nn.modules.module import Module


def is_array(thing: Any) -> bool:
    """A NumPy array, without importing it; one of objects has no content to compare."""
    return type(thing).__module__ == "numpy" and type(thing).__name__ == "ndarray" and not thing.dtype.hasobject


def differs(now: Any, then: Any) -> bool:
    if isinstance(then, types.MethodType) and now == then:
        return False
    return _copy(now) is MISSING or _copy(then) is MISSING or _differs(now, then)


def same_items(thing: Any, copy: Any) -> bool:
    if is_array(thing):
        return thing.shape == copy.shape and thing.dtype == copy.dtype and thing.tobytes() == copy.tobytes()
    if len(thing) != len(copy):
        return False
    if isinstance(thing, set):
        return thing == copy
    if isinstance(thing, dict):
        return all(a is b for a, b in zip(thing, copy)) and all(thing[k] is copy[k] or _is_equal(thing[k], copy[k]) for k in thing)
    return all(a is b or _is_equal(a, b) for a, b in zip(thing, copy))


def _is_equal(a: Any, b: Any) -> bool:
    return _is_plain(a) and _is_plain(b) and not _differs(a, b)


def fill(thing: Any, copy: Any) -> None:
    """Makes a container as it was."""
    if is_array(thing):
        thing[...] = copy
        return
    thing.clear()
    (thing.extend if isinstance(thing, (list, collections.deque)) else thing.update)(copy)


class Attributes:
    """The attributes of modules as they are now: whether a run changes them, and to put them back."""

    _OURS = (*TABLES, "_graph_config")

    def __init__(self, modules: list[Module]) -> None:
        self._of = [(m, dict(vars(m)), {t: dict(vars(m)[t]) for t in TABLES},
                     {n: v.copy() for n, v in vars(m).items() if type(v) in (list, dict, set) and not n.startswith("_")}) for m in modules]

    def changed(self) -> str | None:
        for module, own, tables, copies in self._of:
            now = vars(module)
            for name in now.keys() | own.keys():
                if name not in self._OURS and now.get(name, MISSING) is not own.get(name, MISSING) and not _is_equal(
                        now.get(name, MISSING), own.get(name, MISSING)):
                    return f"{type(module).__name__}.{name}"
            for table, entries in tables.items():
                for name in now[table].keys() | entries.keys():
                    if now[table].get(name, MISSING) is not entries.get(name, MISSING):
                        return f"{type(module).__name__}.{name}"
            for name, copy in copies.items():
                if not same_items(now[name], copy):
                    return f"{type(module).__name__}.{name}"
        return None

    def restore(self) -> None:
        for module, own, tables, copies in self._of:
            now = vars(module)
            for name in list(now.keys() - own.keys()):
                del now[name]
            now.update(own)
            for table, entries in tables.items():
                now[table].clear()
                now[table].update(entries)
            for name, copy in copies.items():
                if not same_items(now[name], copy):
                    fill(now[name], copy)
