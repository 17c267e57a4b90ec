#!/usr/bin/env python3
"""Checks docs/features.md: every row names a path or command that exists; and so do the classes of docs/security.md.

A row of the first is `| id | what | checked by |`; the third column lists `path`, `path::name` (a test of that name must
be in the file) or `make target`, in backticks. Of the second, the last column of each class names at least one
`path::name`.
"""
import re
import sys
from pathlib import Path

root = Path(__file__).parent.parent
makefile = (root / "Makefile").read_text()


def problem(check):
    """What is wrong with `path`, `path::name` or `make target`; "" where nothing is."""
    if check.startswith("make "):
        target = re.escape(check.split()[1])
        return "" if re.search(rf"^[\w ]*\b{target}\b[\w ]*:", makefile, re.M) else f"no such target: {check}"
    path, _, name = check.partition("::")
    if not (root / path).exists():
        return f"no such file: {path}"
    if not name:
        return ""
    text = (root / path).read_text()
    suite, _, test = name.partition(".")
    found = re.search(rf"TEST(_P|_F)?\({suite}, *{test}\)", text) if test else re.search(rf"\b{name}\b", text)
    return "" if found else f"no test {name} in {path}"


errors, rows, classes = [], 0, 0
for number, line in enumerate((root / "docs/features.md").read_text().splitlines(), 1):
    match = re.match(r"\| *([A-Z]+-\d+) *\|([^|]*)\|([^|]*)\|", line)
    if not match:
        continue
    rows += 1
    checks = re.findall(r"`([^`]+)`", match[3])
    if not checks:
        errors.append(f"docs/features.md:{number}: {match[1]}: nothing in backticks in the third column")
    errors += [f"docs/features.md:{number}: {match[1]}: {text}" for text in map(problem, checks) if text]
table = (root / "docs/security.md").read_text().partition("\n## Classes of attack\n")[2].partition("\n## ")[0]
for line in table.strip().splitlines()[2:]:
    classes += 1
    name, held = line.split("|")[1].strip(), line.split("|")[-2]
    checks = [check for check in re.findall(r"`([^`]+)`", held) if "::" in check]
    if not checks:
        errors.append(f"docs/security.md: {name}: no test by name in the last column")
    errors += [f"docs/security.md: {name}: {text}" for text in map(problem, checks) if text]
print("\n".join(errors) or f"features: {rows} rows ok, {classes} classes of attack")
sys.exit(bool(errors))
