#!/usr/bin/env bash
# Every header compiles alone. Those of the CUDA backend only where its headers are.
set -uo pipefail
cd "$(dirname "$0")/.."
cuda=${CUDA_HOME:-/usr/local/cuda}/include
skip='[-]inl\.h$|^kernels/cpu/'  # private pieces of one source file
libraries=.venv/cuda/include  # or wherever else cmake/SluiceCuda.cmake finds them
[ -f "$cuda/cuda.h" ] && [ -f "$libraries/nccl.h" ] || skip="$skip|/cuda/"
compile_alone() {
  echo "#include \"$1\"" | g++ -std=c++20 -fsyntax-only -Wall -Wextra -I. -Iinclude -isystem "$cuda" -isystem "$libraries" -x c++ - ||
    { echo "$1: does not compile alone"; return 1; }
}
export -f compile_alone
export cuda libraries
git ls-files {base,plan,graph,compiler,streams,memory,actors,runtime,tensor,kernels,include}/'*.h' | grep -vE -- "$skip" |
  xargs -P "$(nproc)" -I{} bash -c 'compile_alone {}' || exit 1
echo "headers: ok"
