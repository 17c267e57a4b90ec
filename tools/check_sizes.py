#!/usr/bin/env python3
"""Fails when a source file is longer than the limit: 500 lines, tests 800."""
import subprocess
import sys
from pathlib import Path

root = Path(__file__).parent.parent
files = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.py", "*.js"], cwd=root, capture_output=True,
                       text=True, check=True).stdout.split()
bad = []
for name in files:
    lines = len((root / name).read_text(errors="ignore").splitlines())
    limit = 800 if name.startswith("tests/") else 500
    if lines > limit:
        bad.append(f"{name}: {lines} lines; at most {limit}: split it along what it holds")
print("\n".join(bad) or "sizes: ok")
sys.exit(bool(bad))
