#!/usr/bin/env bash
# Clang's thread-safety analysis over the sources that take annotated locks (base/mutex.h). Only where clang is.
set -uo pipefail
cd "$(dirname "$0")/.."
clang=$(compgen -c clang++ | grep -E '^clang\+\+(-[0-9]+)?$' | sort -V | tail -1)
[ -n "$clang" ] || { echo "threads: skipped: there is no clang++"; exit 0; }
check() {
  "$1" -std=c++20 -fsyntax-only -Wthread-safety -Werror=thread-safety -I. -Iinclude -isystem /usr/include/eigen3 "$2" ||
    { echo "$2: a lock is not held where it must be"; return 1; }
}
export -f check
sources=$(git grep -lE 'MutexLock|SLUICE_REQUIRES' -- '*.cpp' ':!tests')
xargs -P "$(nproc)" -I{} bash -c "check $clang {}" <<<"$sources" || exit 1
echo "threads: ok ($(wc -l <<<"$sources") sources)"
