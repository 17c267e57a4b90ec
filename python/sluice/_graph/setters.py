"""Methods of graph.config that do no more than set an option. They are made from the tables compiler/options.inc and
runtime/options.inc, which say their names, what they take and what they are for (docs/adding-an-option.md)."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable

from sluice import _C

TABLE: list[dict[str, Any]] = _C.option_table()
# Options that a plan keeps. A graph where all of them are as by default shows none.
DEFAULTS: dict[str, Any] = {row["name"]: row["default"] for row in TABLE if row["recorded"] and row["graphs"]}
# Options that say how a plan is run, and not which one it is.
OF_RUNS = {row["name"] for row in TABLE if row["table"] == "session" and row["recorded"]}


def _switch(row: dict[str, Any]) -> Callable[..., None]:
    on, off = (row["on"], row["default"]) if row["on"] else (True, False)

    def setter(self: Any, mode: bool = True) -> None:
        if row["reports"]:
            self._ask(row["setter"], row["reports"], bool(mode), row["name"], on if mode else off)
        else:
            self._set(row["name"], on if mode else off)

    return setter


def _choice(row: dict[str, Any]) -> Callable[..., None]:
    accepted = row["accepts"]
    wanted = ", ".join(map(repr, accepted[:-1])) + f" or {accepted[-1]!r}"

    def setter(self: Any, value: Any) -> None:
        if value not in accepted:
            raise ValueError(f"{row['setter']}: got {value!r}; must be {wanted}")
        self._set(row["name"], value)

    # The parameter has the option's name.
    setter.__code__ = setter.__code__.replace(co_varnames=("self", row["name"]))
    setter.__annotations__ = {row["name"]: "Any", "return": "None"}
    return setter


def _number(row: dict[str, Any]) -> Callable[..., None]:
    wanted = f"at least {row['least']}" + (f" (0 = {row['zero']})" if row["zero"] else "")

    def setter(self: Any, n: int) -> None:
        if n < row["least"]:
            raise ValueError(f"{row['setter']}: got {n}; must be {wanted}")
        self._set(row["name"], int(n))

    return setter


def _time(row: dict[str, Any]) -> Callable[..., None]:
    def setter(self: Any, seconds: Any) -> None:
        self._set(row["name"], float(seconds))

    return setter


_KINDS = {"bool": _switch, "int": _number, "seconds": _time}


def setters(table: list[dict[str, Any]]) -> dict[str, Callable[..., None]]:
    """The methods of a table, by name. They are for a class that has _set() and _ask(), as PassOptions has them."""
    made = {}
    for row in table:
        if not row["setter"]:
            continue
        kind = _switch if row["on"] else _choice if row["accepts"] else _KINDS[row["kind"]]
        setter = made[row["setter"]] = kind(row)
        setter.__name__, setter.__qualname__ = row["setter"], f"GraphConfig.{row['setter']}"
        setter.__annotations__.pop("self", None)  # signatures are those of methods
        setter.__doc__ = inspect.cleandoc(row["doc"])
    return made


if TYPE_CHECKING:
    from sluice._C.setters import Setters as Setters  # a stub that src/make_stubs.py writes from the same tables
else:
    Setters = type("Setters", (), {"__doc__": "A part of GraphConfig.", "__module__": __name__, **setters(TABLE)})
