#!/usr/bin/env bash
# What a change must pass beside the tests (make check runs both). Usage: tools/check.sh
set -euo pipefail
cd "$(dirname "$0")/.."
echo "== format";  git ls-files '*.h' '*.cpp' | xargs .venv/bin/clang-format --dry-run -Werror
echo "== layers";  python3 tools/check_layers.py
echo "== sizes";   python3 tools/check_sizes.py
echo "== readmes"; python3 tools/check_readmes.py
echo "== tests";   python3 tools/check_tests.py
echo "== python";  tools/check_python.sh
echo "== page";    tsc -p tools/plan_viz/page
echo "== headers"; tools/check_headers.sh
echo "== threads"; tools/check_threads.sh
echo "== feature table"; python3 tools/check_features.py
echo "== words";   python3 tools/check_words.py
