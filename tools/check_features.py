#!/usr/bin/env python3
"""Checks docs/features.md: every row names a path or command that exists.

A row is `| id | what | checked by |`; the third column lists `path`, `path::name` (a test of that name must be in the
file) or `make target`, in backticks.
"""
import re
import sys
from pathlib import Path

root = Path(__file__).parent.parent
errors, rows = [], 0
makefile = (root / "Makefile").read_text()
for number, line in enumerate((root / "docs/features.md").read_text().splitlines(), 1):
    match = re.match(r"\| *([A-Z]+-\d+) *\|([^|]*)\|([^|]*)\|", line)
    if not match:
        continue
    rows += 1
    checks = re.findall(r"`([^`]+)`", match[3])
    if not checks:
        errors.append(f"docs/features.md:{number}: {match[1]}: nothing in backticks in the third column")
    for check in checks:
        if check.startswith("make "):
            if not re.search(rf"^[\w ]*\b{re.escape(check.split()[1])}\b[\w ]*:", makefile, re.M):
                errors.append(f"docs/features.md:{number}: {match[1]}: no such target: {check}")
            continue
        path, _, name = check.partition("::")
        file = root / path
        if not file.exists():
            errors.append(f"docs/features.md:{number}: {match[1]}: no such file: {path}")
        elif name:
            text = file.read_text()
            suite, _, test = name.partition(".")
            found = re.search(rf"TEST(_P|_F)?\({suite}, *{test}\)", text) if test else re.search(rf"\b{name}\b", text)
            if not found:
                errors.append(f"docs/features.md:{number}: {match[1]}: no test {name} in {path}")
print("\n".join(errors) or f"features: {rows} rows ok")
sys.exit(bool(errors))
