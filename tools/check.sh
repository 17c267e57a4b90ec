#!/usr/bin/env bash
# Everything a change must pass; CI and developers run the same. Usage: tools/check.sh [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
echo "== format";  git ls-files '*.h' '*.cpp' | xargs clang-format --dry-run -Werror
echo "== layers";  python3 tools/check_layers.py
echo "== sizes";   python3 tools/check_sizes.py
echo "== headers"; tools/check_headers.sh
echo "== feature table"; python3 tools/check_features.py
echo "== C++ tests"; ctest --test-dir "$build" --output-on-failure -j "$(nproc)"
echo "== Python tests"; .venv/bin/python -m pytest -q tests/python tests/distributed tests/packaging
