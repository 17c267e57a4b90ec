#!/usr/bin/env bash
# The soak tests (suites Soak*, pytest marker soak) in full. usage: tools/test_long.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
export SLUICE_LONG=1 SLUICE_BUILD=$build PYTHONPATH=$build/python
log=$build/test_long.log
: > "$log"
failed=()
for program in "$build"/tests/*_tests; do
  "$program" --gtest_list_tests --gtest_filter='*Soak*' | grep -q '^  ' || continue
  "$program" --gtest_filter='*Soak*' --gtest_brief=1 | tee -a "$log" || failed+=("$(basename "$program")")
done
.venv/bin/python -m pytest -q -m soak tests/python tests/packaging | tee -a "$log" || failed+=(pytest)
echo "--- counts"
grep -h '^count: ' "$log" | sort
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
