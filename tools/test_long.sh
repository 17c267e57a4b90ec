#!/usr/bin/env bash
# The soak tests (suites Soak*, pytest marker soak) in full, and 20,000 random programs against torch, two processes at a
# time, and 200 generated calls of every name; about 100 minutes on two cores.
# usage: tools/test_long.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
export SLUICE_LONG=${SLUICE_LONG:-1} SLUICE_BUILD=$build PYTHONPATH=$build/python
export logs=$build/test_long
rm -rf "$logs" && mkdir "$logs"

soak() {
  name=$(basename "$1")
  "$1" --gtest_list_tests --gtest_filter='*Soak*' | grep -q '^  ' || return 0
  if "$1" --gtest_filter='*Soak*' --gtest_brief=1 > "$logs/$name.log"; then
    echo "passed  $name"
  else
    grep -A 20 -m 3 Failure "$logs/$name.log" || true
    echo "FAILED  $name: $logs/$name.log"
    return 1
  fi
}
export -f soak
failed=0
find "$build/tests" -name "*_tests" -type f -perm -u+x | sort | xargs -P 2 -I{} bash -c 'soak {}' || failed=1
for folder in python packaging; do  # each by itself, since modules of both have the same names
  .venv/bin/python -m pytest -q -m soak "tests/$folder" | tee "$logs/pytest_$folder.log" || failed=1
done
.venv/bin/python -m pytest -q -s tests/serving/python/test_load.py | tee "$logs/load.log" || failed=1
PYTHONPATH=tests/python:$PYTHONPATH .venv/bin/python -m differential --seed 300 --count 20000 --jobs 2 --shrink |
  tee "$logs/differential.log" || failed=1
for flags in "--n 200" "--n 40 --graph" "--n 40 --global" "--n 20 --decomp"; do
  .venv/bin/python -m sluice.testing.autotest --ops all --seed 7 $flags | tee "$logs/autotest${flags// /}.log" || failed=1
done
echo "--- counts"
grep -h '^count: ' "$logs"/*.log | sort
exit $failed
