#!/usr/bin/env bash
# The soak tests (suites Soak*, pytest marker soak) in full, 20,000 random programs against torch and 200 generated calls
# of every name, the Python tests on other instruction sets, two jobs at a time; then a server under load, alone. Hours on
# two cores.
# usage: tools/test_long.sh BUILD_DIR [PREFIX]   PREFIX: only the jobs whose names begin so: load, autotest, Soak, pytest, ...
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1") only=${2:-}
export SLUICE_LONG=${SLUICE_LONG:-1} SLUICE_BUILD=$build PYTHONPATH=$build/python:tests/python
export logs=$build/test_long
rm -rf "$logs" && mkdir "$logs"

run() {  # NAME COMMAND: its output is a file
  local name=${1%% *} command=${1#* } start=$SECONDS
  if bash -c "$command" > "$logs/$name.log" 2>&1; then
    echo "passed  $name ($((SECONDS - start)) s)"
  else
    echo "FAILED  $name ($((SECONDS - start)) s): $command"
    grep -E -A 20 -m 3 'Failure|^FAILED|^E  |differs|Traceback' "$logs/$name.log" || tail -20 "$logs/$name.log"
    return 1
  fi
}
export -f run

soaks_of() {  # PATTERN: a job for each soak test of the C++ programs of such names
  find "$build/tests" -name "*_tests" -type f -perm -u+x | grep -E "$1" | sort | while read -r program; do
    "$program" --gtest_list_tests --gtest_filter='*Soak*' | awk -v program="$program" '
      /^[^ ].*\./ { suite = $1 }
      /^  / { test = suite $1; name = test; gsub("/", "_", name)
              print name, program, "--gtest_brief=1 --gtest_filter=" test }'
  done
}

jobs_of_2() {
  local from flags
  soaks_of explorer
  echo "autotest_eager .venv/bin/python -m sluice.testing.autotest --ops all --seed 7 --n 200"
  for from in 300 5300 10300 15300; do
    echo "differential_$from .venv/bin/python -m differential --seed $from --count 5000 --jobs 1 --shrink"
  done
  for folder in python packaging serving/python; do  # each by itself, since modules of both have the same names
    echo "pytest_${folder//\//_} .venv/bin/python -m pytest -q -m soak tests/$folder"
  done
  for flags in "--n 40 --graph" "--n 40 --global" "--n 20 --decomp"; do
    echo "autotest_${flags##*--} .venv/bin/python -m sluice.testing.autotest --ops all --seed 7 $flags"
  done
  echo "ecosystem .venv/bin/python -W ignore -m pytest -q -m soak tests/ecosystem"
  for level in baseline avx2 avx512 nudged; do
    echo "isas_$level tools/check_isas.sh $build $level"
  done
  soaks_of 'faults'
  soaks_of '' | grep -v -E 'tests/(explorer|faults)'
}

jobs_of_1() {
  echo "load .venv/bin/python -m pytest -q -s tests/serving/python/test_load.py"
  echo "serving_memory .venv/bin/python -m pytest -q -s tests/serving/python/test_memory.py"
}

failed=0
for at_once in 2 1; do
  jobs_of_$at_once | awk -v only="$only" 'index($0, only) == 1' | tr '\n' '\0' |
    xargs -0 -r -P $at_once -I{} bash -c 'run "$1"' _ {} || failed=1
done
if [ -z "$(ls "$logs")" ]; then
  names=$({ jobs_of_2; jobs_of_1; } | cut -d' ' -f1 | paste -sd' ')
  echo "test_long: ONLY: got $only; must be how a job's name begins: $names" >&2
  exit 2
fi
echo "--- counts"
grep -h '^count: ' "$logs"/*.log | sort || true
exit $failed
