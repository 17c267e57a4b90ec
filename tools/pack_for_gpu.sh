#!/usr/bin/env bash
# Packs what tools/gpu_check.sh needs on a GPU machine that has nothing of ours: test programs and libraries of a build,
# the libraries of others that they load, and what building the Python module takes.
# usage: tools/pack_for_gpu.sh BUILD_DIR OUT.tar.xz    (at most 64 MiB; $XZ_OPT says how hard xz tries)
set -euo pipefail
[ $# = 2 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
build=$(realpath "$1") out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
to=$tmp/sluice-gpu
mkdir -p "$to"/{bin,lib,static,include,source}

programs=(conformance_tests ops_tests runtime_tests tensor_tests fuzz_tests cuda/cuda_tests)
for p in "${programs[@]}"; do install -s "$build/tests/$p" "$to/bin/"; done
install -s "$build/tools/sluice-info" "$to/bin/"
install -s "$build/libsluice_cuda.so" "$build"/tests/cuda/libfake_{cuda,cublaslt,cudnn,nccl}.so "$to/lib/"
for folder in $(sed -n 's/^set(folders \(.*\))$/\1/p' tools/gpu/CMakeLists.txt); do  # what the module is made of
  cp "$build/libsluice_$folder.a" "$to/static/"
done
strip --strip-debug "$to"/static/*.a

# What they load, except what belongs to the machine: its C and C++ libraries.
ldd "$to"/bin/* "$to"/lib/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -Ev '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so[.0-9]*$|libfake_' |
  xargs -I{} cp -Ln {} "$to/lib/"

# Headers that the module's sources see, found by the compiler; fmt is the only other library among them.
git ls-files base plan graph compiler streams memory kernels actors runtime tensor python python_bindings include tools/gpu \
  tests/conftest.py tests/python benchmarks | grep -v '/cuda/' | grep -E '\.(h|inc|in|txt|py|typed)$|^python_bindings/' |
  tar -c -T - | tar -x -C "$to/source"
cp -r "$build/include" "$to/source/generated"
fmt=$(echo '#include <fmt/format.h>' | g++ -E -x c++ - | sed -n 's,^# 1 "\(.*/fmt\)/format.h".*,\1,p' | head -1)
cp -rL "$fmt" "$to/include/"
cp tools/gpu_check.sh LICENSE "$to/"
git log -1 --format=%H > "$to/commit"

XZ_OPT=${XZ_OPT:--T0} tar -C "$tmp" -caf "$out" sluice-gpu
bytes=$(stat -c %s "$out")
echo "$out: $((bytes >> 20)) MiB"
[ "$bytes" -le $((64 << 20)) ] || { echo "pack_for_gpu: $bytes bytes; must be at most 64 MiB" >&2; exit 1; }
