"""The tables of docs/options.md, from those of the sources: python tools/docs/option_list.py [--write]."""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from typing import Any, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "options.md"
CONFIG = ROOT / "python" / "sluice" / "_graph"
NONE = ""


def written_setters() -> Iterator[tuple[str, str]]:
    """(option, method) of the methods of graph.config that are written by hand, by what they set."""
    for file in ("config.py", "pass_options.py", "auto_parallel.py"):
        for method in ast.walk(ast.parse((CONFIG / file).read_text())):
            if not isinstance(method, ast.FunctionDef) or method.name.startswith("_"):
                continue
            for call in ast.walk(method):
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "_set":
                    continue
                if isinstance(call.args[0], ast.Constant):
                    yield call.args[0].value, method.name


def default_text(row: dict[str, Any]) -> str:
    if row["default"] is None or row["default"] in ("", [], {}):
        return NONE
    return f"`{row['default']!r}`"


def first_sentence(doc: str) -> str:
    text = " ".join(doc.split())
    return re.split(r"(?<=[^.]\.) (?=[A-Z`])", text, maxsplit=1)[0].replace("|", "\\|")


def lines_of(table: list[dict[str, Any]]) -> list[str]:
    by_hand: dict[str, list[str]] = {}
    for option, method in written_setters():
        if method not in by_hand.setdefault(option, []):
            by_hand[option].append(method)
    embedders = any(row["c_name"] for row in table)
    heads = ["option", "default", "may be", "set by `graph.config`", *(["embedders"] if embedders else []), "it says"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in table:
        methods = ([row["setter"]] if row["setter"] else []) + (by_hand.get(row["name"], []) if row["graphs"] else [])
        may_be = ", ".join(f"`{text!r}`" for text in row["accepts"]) or (NONE if row["least"] is None else f"at least {row['least']}")
        cells = [f"`{row['name']}`", default_text(row), may_be, ", ".join(f"`{m}`" for m in methods),
                 *([f"`{row['c_name']}`" if row["c_name"] else NONE] if embedders else []), first_sentence(row["doc"])]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def page_with_tables(page: str) -> str:
    import sluice

    rows = sluice._C.option_table()
    for table in ("compile", "session"):
        lines = "\n".join(lines_of([row for row in rows if row["table"] == table]))
        before, begin, behind = page.partition(f"<!-- {table} -->\n")
        end = behind.index("<!-- end -->")
        page = f"{before}{begin}\n{lines}\n\n{behind[end:]}"
    return page


if __name__ == "__main__":
    made = page_with_tables(PAGE.read_text())
    if "--write" in sys.argv:
        PAGE.write_text(made)
    else:
        print(made)
