#!/usr/bin/env bash
# All tests: every phase runs, whichever fails. The last lines are counts, what was skipped and why, and which phases failed.
# Reports in JUnit's format lie in BUILD_DIR/test_report, for tools/check_features.py. usage: tools/test.sh BUILD_DIR [JOBS]
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1") jobs=${2:-$(nproc)} python=${PYTHON:-.venv/bin/python}
export SLUICE_BUILD=$build PYTHONPATH=$build/python
report=$build/test_report
rm -rf "$report"
mkdir -p "$report"
failed=()

phase() {  # NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  "$@" || failed+=("$name")
  echo "== $name: $((SECONDS - start)) s"
}
tests_of() {  # NAME ARGUMENTS: of pytest
  phase "$1" "$python" -m pytest -q --rootdir . -o junit_family=xunit1 --junitxml "$report/$1.xml" "${@:2}"
}

phase cpp ctest --test-dir "$build" --output-on-failure --output-junit "$report/cpp.xml" -j "$jobs"
tests_of python -n "$jobs" tests/python
tests_of ecosystem -n "$jobs" tests/ecosystem  # by itself, since it imports other versions of packages that tests/python imports
tests_of programs tests/distributed tests/serving/python
tests_of packaging -n "$jobs" --dist loadfile tests/packaging

# Tests of many parts, each a process, have a line for each of them.
grep -hs '^count: ' "$build/Testing/Temporary/LastTest.log" | sort | awk -F ': ' '
  { unit = $3; sub(/^[0-9]+ /, "", unit) }
  NF == 3 && $3 ~ /^[0-9]+ / { sum[$2 ": " unit] += $3; name[$2 ": " unit] = $2; of[$2 ": " unit] = unit; next }
  { print }
  END { for (key in sum) print "count: " name[key] ": " sum[key] " " of[key] }' | sort
"$python" tools/test_report.py "$report" cpp python ecosystem programs packaging || failed+=(report)
if [ ${#failed[@]} -gt 0 ]; then
  echo "test: FAILED: ${failed[*]}"
  exit 1
fi
echo "test: all phases passed"
