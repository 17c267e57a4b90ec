#!/usr/bin/env bash
# Clang's thread-safety analysis of the locks that say what they guard (base/mutex.h); skipped where clang is not. It reads
# the headers with such locks, the sources of their folders that include them, and all that take such locks themselves.
set -uo pipefail
cd "$(dirname "$0")/.."
clang=$(compgen -c clang++ | grep -E '^clang\+\+(-[0-9]+)?$' | sort -V | tail -1)
made=${SLUICE_BUILD:-build/release}/include  # has sluice/version.h, which configuring makes
[ -n "$clang" ] || { echo "threads: skipped: there is no clang++ (tools/setup.sh installs it)"; exit 0; }
[ -f "$made/sluice/version.h" ] || { echo "threads: there is no $made/sluice/version.h; run 'make build' first"; exit 1; }
check() {
  "$clang" -x c++ -std=c++20 -fsyntax-only -Wthread-safety -Werror=thread-safety -Wno-pragma-once-outside-header \
    -I. -Iinclude -I"$made" -DSLUICE_BACKEND_ABI='""' -isystem /usr/include/eigen3 "$1" || { echo "$1: a lock is not held where it must be"; return 1; }
}
export -f check
export clang made
headers=$(git grep -lE 'SLUICE_(GUARDED_BY|REQUIRES)' -- '*.h' ':!base/thread_annotations.h' ':!tests')
sources=$({
  for header in $headers; do git grep -lF "#include \"$header\"" -- ":(glob)$(dirname "$header")/*.cpp"; done
  git grep -lE 'MutexLock|SLUICE_REQUIRES' -- '*.cpp' ':!tests'
} | grep -v '/cuda/' | sort -u)
printf '%s\n' $headers $sources | xargs -P "$(nproc)" -I{} bash -c 'check {}' || exit 1
echo "threads: ok ($(wc -w <<<"$headers") headers, $(wc -w <<<"$sources") sources)"
