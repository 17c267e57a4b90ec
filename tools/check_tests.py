#!/usr/bin/env python3
"""Fails when a test sleeps: what it waits for must tell it (tests/README.md). `sleep(0)`, which gives way, is none."""
import re
import subprocess
import sys
from pathlib import Path

# The files in which a sleep is the work itself, and no sign that something else has come to pass.
ALLOWED = {
    "tests/runtime/sleeping.h": "kernels that take real time and no core: how long plans of them take is what is measured",
    "tests/python/test_costs.py": "functions that take real time and no core: how long steps of them take is what is measured",
}
SLEEP = {
    "C++": re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|clock_nanosleep|sleep)\s*\((?!0\))"),
    "Python": re.compile(r"\bsleep\s*\((?!0\))|import\s+sleep\b"),  # in the text of a program, too
    "shell": re.compile(r"\bsleep\s+[\d.$]"),
}
LANGUAGE = {".h": "C++", ".cpp": "C++", ".cu": "C++", ".py": "Python", ".sh": "shell"}


def sleeps_of(name, text):
    """(line number, line) of each sleep."""
    pattern = SLEEP[LANGUAGE[Path(name).suffix]]
    return [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def main(root):
    names = subprocess.run(["git", "ls-files", *(f"tests/*{suffix}" for suffix in LANGUAGE)], cwd=root, capture_output=True, text=True,
                           check=True).stdout.split()
    found = {name: sleeps for name in names if (sleeps := sleeps_of(name, (root / name).read_text(errors="ignore")))}
    bad = [f"{name}:{n}: a test sleeps: {line}; wait for what it is to come after (tests/support/eventually.h and tests/waiting.py wait for what "
           "nobody announces)" for name, sleeps in found.items() if name not in ALLOWED for n, line in sleeps]
    bad += [f"tools/check_tests.py: {name} does not sleep; take it from ALLOWED" for name in ALLOWED if name not in found]
    print("\n".join(bad) or f"tests: ok: {len(names)} files, {len(ALLOWED)} of which may sleep")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent.parent))
