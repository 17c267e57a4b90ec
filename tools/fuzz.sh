#!/usr/bin/env bash
# Fuzzes every input format. usage: tools/fuzz.sh [SECONDS_EACH]
#   RUNS=200000 tools/fuzz.sh    so many executions of each instead
#   ONLY=plan_json tools/fuzz.sh 600    one target
#   BUILD=dir                    another build directory than build/fuzz
# What is learnt goes to BUILD/corpus, findings to BUILD/findings. Ends with 1 when there is a finding, and says how to
# see it again.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
build=${BUILD:-build/fuzz}
targets=(plan_json recording message_order graph_text safetensors bundle_dir shapes op_infer tar_file record_file encoded_image
         http_head infer_json bytes_tensor packed_body config_text infer_message onnx_model)
[ -z "${ONLY:-}" ] || targets=("$ONLY")

tools/setup.sh fuzz
for compiler in clang++-19 clang++-18 clang++-16; do ! command -v "$compiler" > /dev/null || break; done
test -f "$build/build.ninja" || cmake --preset fuzz -B "$build" -DCMAKE_CXX_COMPILER="$compiler" > /dev/null
cmake --build "$build" --target fuzz_targets -j "${JOBS:-$(nproc)}"

limits=(-rss_limit_mb=2048 -timeout=25 -malloc_limit_mb=1024 -print_final_stats=1)
if [ -n "${RUNS:-}" ]; then limits+=("-runs=$RUNS"); else limits+=("-max_total_time=$seconds"); fi
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:handle_abort=1 UBSAN_OPTIONS=print_stacktrace=1
declare -A longest=([shapes]=512 [op_infer]=1024 [graph_text]=16384 [http_head]=16384 [config_text]=4096)

found=0
printf '%-12s %12s %8s %10s %9s\n' target executions corpus coverage seconds
for target in "${targets[@]}"; do
  learnt=$build/corpus/$target findings=$build/findings/$target log=$build/fuzz_$target.log
  mkdir -p "$learnt" "$findings"
  start=$SECONDS status=0
  program=$(find "$build" -type f -name "fuzz_$target" -perm -u+x)
  dictionary=tests/fuzz_targets/dictionaries/$target.dict
  [ ! -f "$dictionary" ] || limits_here=("-dict=$dictionary")
  "$program" "${limits[@]}" ${limits_here[@]+"${limits_here[@]}"} "-max_len=${longest[$target]:-65536}" "-artifact_prefix=$findings/" \
    "$learnt" "tests/fuzz_targets/corpus/$target" > "$log" 2>&1 || status=$?
  unset limits_here
  executions=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
  coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1 | cut -d' ' -f2 || true)
  corpus=$(grep -o 'corp: [0-9]*' "$log" | tail -n 1 | cut -d' ' -f2 || true)
  printf '%-12s %12s %8s %10s %9s\n' "$target" "${executions:-0}" "${corpus:-0}" "${coverage:-0}" $((SECONDS - start))
  echo "count: fuzz $target: ${executions:-0} executions"
  [ "$status" -eq 0 ] && continue
  found=1
  file=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
  echo "FINDING in $target:"
  grep -m 5 -E '^finding|ERROR: |runtime error|SUMMARY|what\(\)' "$log" || tail -n 5 "$log"
  echo "  log:          $log"
  echo "  reproducer:   ${file:-none was written}"
  echo "  see it again: $program ${file:-<reproducer>}"
  echo "  once fixed:   cp ${file:-<reproducer>} tests/fuzz_targets/corpus/$target/<what was wrong>"
done
exit $found
