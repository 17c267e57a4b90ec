"""Explains errors and what to do: `python -m sluice.info explain`, and a part of docs/troubleshooting.md.

The table is troubles.txt, which is compiled into the program `sluice-info` too (tools/sluice_info/explain.cpp looks things up
as this module does). `python -m sluice._base.troubles` writes the page's part. tests/python/test_troubleshooting.py has a program
for each entry that raises its text.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple, Optional


class Trouble(NamedTuple):
    """An error: its code, a part of its text, why it comes, what to do, and the section of troubleshooting.md it is in."""

    code: str
    text: str
    because: str
    do: str
    section: str


_FILE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "troubles.txt")


def _read(text: str) -> list[Trouble]:
    """The table of a file such as troubles.txt, whose head says what it looks like."""
    found: list[Trouble] = []
    prefix, section, number = "", "", 0
    for line in text.splitlines():
        if line.startswith("## "):
            prefix, section = line[3:].split(" ", 1)
            number = 0
        elif line and not line.startswith("#"):
            number += 1
            words, because, do = line.split(" | ")
            found.append(Trouble(f"{prefix}{number:02}", words, because, do, section))
    return found


with open(_FILE, encoding="utf-8") as _file:
    TABLE = _read(_file.read())
_LONGEST_FIRST = sorted(TABLE, key=lambda trouble: -len(trouble.text))


def find(message: str) -> Optional[Trouble]:
    """The entry whose text the message contains; of several, what comes first in it, and then the longest."""
    there = [trouble for trouble in _LONGEST_FIRST if trouble.text in message]
    return min(there, key=lambda trouble: message.index(trouble.text), default=None)


def _plain(markdown: str) -> str:
    return re.sub(r"\[([^\]]*)\]\(([^)]*)\)", r"docs/\2", markdown).replace("`", "")


def _likeness(a: str, b: str) -> float:
    """The likeness of two texts: from 0 to 1, by the length of their longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row
        row = [0]
        for j, y in enumerate(b):
            row.append(before[j] + 1 if x == y else max(before[j + 1], row[j]))
    return 2 * row[-1] / ((len(a) + len(b)) or 1)


def explain(words: str) -> str:
    """Explains `words`, a code or the text of an error, and what to do. Raises LookupError with the nearest texts."""
    wanted = words.strip()
    trouble = next((t for t in TABLE if t.code == wanted.upper()), None) or find(wanted)
    if trouble is None:
        lower = wanted.lower()
        trouble = next((t for t in _LONGEST_FIRST if t.text.lower() in lower or (len(lower) > 5 and lower in t.text.lower())), None)
    if trouble is None:
        near = [t.text for t in sorted(TABLE, key=lambda t: -_likeness(wanted, t.text)) if _likeness(wanted, t.text) >= 0.6][:3]
        raise LookupError(f"explain: nothing is known of '{wanted[:200]}'; give a code such as E201, or a part of an error's text"
                          + (f". The nearest: {'; '.join(near)}" if near else ""))
    return (f"{trouble.code}  {trouble.section}\n  the error says  {trouble.text}\n  because         {_plain(trouble.because)}\n"
            f"  do this         {_plain(trouble.do)}\n")


def page() -> str:
    """The part of docs/troubleshooting.md that is a table."""
    lines = []
    for section in dict.fromkeys(t.section for t in TABLE):
        lines += [f"### {section}", "", "| code | the error says | because | do this |", "|---|---|---|---|"]
        lines += [f"| {t.code} | `{t.text}` | {t.because} | {t.do} |" for t in TABLE if t.section == section]
        lines += [""]
    return "\n".join(lines)


def note_on(errors: type) -> None:
    """Gives these exceptions `code`, and a line below their traceback that says how to have them explained."""

    def code(self: BaseException) -> Optional[str]:
        trouble = find(str(self))
        return None if trouble is None else trouble.code

    def notes(self: BaseException) -> list[str]:
        if "__notes__" not in self.__dict__:
            found = self.code  # type: ignore[attr-defined]
            self.__dict__["__notes__"] = [] if found is None else [f"  more: python -m sluice.info explain {found}"]
        return self.__dict__["__notes__"]

    errors.code = property(code, doc="The code of the error in docs/troubleshooting.md, or None.")  # type: ignore[attr-defined]
    errors.__notes__ = property(notes)  # type: ignore[attr-defined]


if __name__ == "__main__":
    print(page(), end="")
