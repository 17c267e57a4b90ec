"""The contents of modules: they tell whether a run changes them, and put them back."""

from __future__ import annotations

from sluice._guards.values import ENTRIES as TABLES, fill, is_equal, MISSING, same_items
from sluice.nn.modules.module import Module


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
                if name not in self._OURS and now.get(name, MISSING) is not own.get(name, MISSING) and not is_equal(
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
