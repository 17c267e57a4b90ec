#!/usr/bin/env bash
# The floors of the Python package (import-linter) and its style (ruff), as pyproject.toml has them. Usage: tools/check_python.sh
set -euo pipefail
cd "$(dirname "$0")/.."
package=python/sluice
# import-linter reads files, and sluice._C is a library: in the copy that it reads an empty module stands for it.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$package" "$copy/sluice"
touch "$copy/sluice/_C.py"
PYTHONPATH="$copy:tools" .venv/bin/lint-imports --no-cache
.venv/bin/ruff check --no-cache "$package"
