#!/usr/bin/env bash
# Everything that can be checked on a machine with a GPU, which may be offline and have nothing of ours. Run it where
# the bundle of tools/pack_for_gpu.sh was unpacked; it goes on after failures and ends with a table.
# usage: gpu_check.sh [--device cuda:0] [--logs DIR] [--limit SECONDS] [STEP...]
#   --device sim:0: the same without a GPU. STEPs (all): info conformance ops products convolutions runtime
#   tensor fuzz nvrtc cublaslt cudnn module python autotest bench. Benchmarks may take an hour on a GPU; elsewhere
#   their nets are tiny. --limit (540): of a program.
# Exit status: 0 when nothing failed. A step that cannot be here is "skipped", with the reason.
set -uo pipefail
here=$(realpath "$(dirname "$0")") device=cuda:0 logs=$PWD/gpu_logs limit=540 steps=()
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=$2 && shift 2 ;;
    --limit) limit=$2 && shift 2 ;;
    --logs) logs=$(realpath -m "$2") && shift 2 ;;
    -*) sed -n '2,8s/^# //p' "$0" >&2; exit 2 ;;
    *) steps+=("$1") && shift ;;
  esac
done
all=(info conformance ops products convolutions runtime tensor fuzz nvrtc cublaslt cudnn module python autotest bench)
[ ${#steps[@]} -gt 0 ] || steps=("${all[@]}")
mkdir -p "$logs" && : > "$logs/table.txt"
export SLUICE_TEST_DEVICE=$device SLUICE_CUDA_LIBRARY=$here/lib/libsluice_cuda.so
export SLUICE_CUDA_DRIVER=libcuda.so.1  # test programs take a fake one where nothing is said
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
on_gpu() { [[ $device == cuda:* ]]; }
skip() { echo "$*"; return 77; }

suite() {  # PROGRAM FILTER
  timeout "$limit" "$here/bin/$1" --gtest_filter="$2" --gtest_brief=1
}
sharded() {  # PROGRAM FILTER: as many processes as there are cores
  export GTEST_TOTAL_SHARDS
  GTEST_TOTAL_SHARDS=$(nproc)
  seq 0 $((GTEST_TOTAL_SHARDS - 1)) | GTEST_BRIEF=1 GTEST_FILTER=$2 xargs -P 0 -I{} env GTEST_SHARD_INDEX={} timeout "$limit" "$here/bin/$1"
}
# The first library of a name: named by a variable, of the loader, or of a Python package.
library() {  # NAME VARIABLE
  if [ -n "${!2:-}" ]; then echo "${!2}" && return; fi
  ldconfig -p 2>/dev/null | awk -v name="$1" 'index($0, name) {print $NF; exit}' | grep . ||
    find / -xdev -name "$1*" -not -name '*alt*' 2>/dev/null | head -1 | grep .
}
nvrtc() { library libnvrtc.so.13 SLUICE_NVRTC; }
cublaslt() { library libcublasLt.so.13 SLUICE_CUBLASLT; }
cudnn() { library libcudnn.so.9 SLUICE_CUDNN; }

if on_gpu && found=$(nvrtc); then export SLUICE_NVRTC=$found; fi
if on_gpu; then
  export SLUICE_TEST_GPU=1  # results need not have the CPU's bits
  export SLUICE_CUBLASLT SLUICE_CUDNN
  SLUICE_CUBLASLT=$(cublaslt) || SLUICE_CUBLASLT=off
  SLUICE_CUDNN=$(cudnn) || SLUICE_CUDNN=off
  # It loads NVRTC and cuBLASLt by their names.
  for name in libnvrtc.so.13 libcublasLt.so.13; do
    if found=$(library $name NONE); then LD_LIBRARY_PATH+=:$(dirname "$found"); fi
  done
fi

step_info() {
  cat "$here/commit"; uname -srm; ldd --version | head -1
  ! on_gpu || nvidia-smi || return 1
  "$here/bin/sluice-info"
}
# Of cuda these, faults and two of runtime's need kernels for tests, which the shipped backend has not.
step_conformance() { suite conformance_tests "Devices/Conformance.*/cpu:Devices/Conformance.*/sim:Sim*"; }
step_ops() { sharded ops_tests '*DeviceTest*'; }
# Products by generated kernels, where the steps beside this one have them of cuBLASLt.
step_products() { SLUICE_CUBLASLT=off suite ops_tests '*DeviceTest*/matmul:*DeviceTest*/linear:DeviceCalls.AreRight*'; }
# Convolutions by generated kernels, where the steps beside this one have them of cuDNN.
step_convolutions() { SLUICE_CUDNN=off suite ops_tests '*DeviceTest*/conv*:DeviceCalls.AreRight*'; }
step_runtime() { suite runtime_tests 'Failure.*:*EveryOrder*:-Failure.SurfacingLate*:Failure.WithASyncCheck*:*EveryOrder*/device'; }
step_tensor() { suite tensor_tests 'Training.*:Trace.*'; }
step_fuzz() { suite fuzz_tests '*'; }
step_nvrtc() {
  local library
  library=$(nvrtc) || { skip "no libnvrtc.so.13; name it in SLUICE_NVRTC"; return; }
  SLUICE_TEST_NVRTC=$library suite cuda_tests Source.EverySourceIsTakenByNvrtc
}
step_cublaslt() {
  local library
  library=$(cublaslt) && [ "$library" != off ] || { skip "no libcublasLt.so.13; name it in SLUICE_CUBLASLT"; return; }
  SLUICE_TEST_CUBLASLT=$library suite cuda_tests CublasLtLibrary.TakesEveryDescriptor
}
step_cudnn() {
  local library
  library=$(cudnn) && [ "$library" != off ] || { skip "no libcudnn.so.9; name it in SLUICE_CUDNN"; return; }
  SLUICE_TEST_CUDNN=$library suite cuda_tests 'CudnnLibrary.*'
}
step_module() {
  python3 -m nanobind --version > /dev/null 2>&1 || { skip "python3 has no nanobind"; return; }
  cmake -S "$here/source/tools/gpu" -B "$here/build" -DBUNDLE="$here" -DCMAKE_BUILD_TYPE=Release \
    $(command -v ninja > /dev/null && echo -G Ninja) &&
    cmake --build "$here/build" -j "$(nproc)"
}
step_python() {
  ls "$here"/python/sluice/_C*.so > /dev/null 2>&1 || { skip "the module is not built"; return; }
  export PYTHONPATH=$here/python
  python3 - "$device" <<'PYTHON' || return 1
import sys
import numpy as np
import sluice as sl

class Net(sl.nn.Graph):
    def build(self, x):
        with sl.device(sys.argv[1]):
            return (x * 2).relu() + 1


x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
np.testing.assert_array_equal(Net()(sl.tensor(x)).numpy(), np.maximum(x * 2, 0) + 1)
print("a graph on", sys.argv[1], "equals numpy")
PYTHON
  python3 -m pytest --version > /dev/null 2>&1 || { skip "python3 has no pytest; the graph above passed"; return; }
  cd "$here/source" && timeout "$limit" python3 -m pytest -q -p no:cacheprovider tests/python/test_ops.py tests/python/test_tensor.py
}
# Random calls of every op beside PyTorch, as many processes as there are cores.
step_autotest() {
  ls "$here"/python/sluice/_C*.so > /dev/null 2>&1 || { skip "the module is not built"; return; }
  python3 -c 'import torch' > /dev/null 2>&1 || { skip "python3 has no PyTorch"; return; }
  export PYTHONPATH=$here/python OMP_NUM_THREADS=1
  python3 -m sluice.testing.autotest --list > "$logs/ops" || return
  split -n "r/$(nproc)" "$logs/ops" "$logs/ops."
  ls "$logs"/ops.* | xargs -P "$(nproc)" -I{} sh -c 'timeout "${SLUICE_AUTOTEST_SECONDS:-1200}" \
    python3 -m sluice.testing.autotest --device '"$device"' --n "${SLUICE_AUTOTEST_CASES:-2}" --seed 7 --no-shrink \
    --ops "$(paste -sd, {})" > {}.log 2>&1 || { echo "exit status $?" >> {}.log; exit 1; }'
  local status=$?
  cat "$logs"/ops.*.log && return $status
}
step_bench() {
  ls "$here"/python/sluice/_C*.so > /dev/null 2>&1 || { skip "the module is not built"; return; }
  export PYTHONPATH=$here/python
  cd "$here/source" || return 1
  if on_gpu; then timeout 3600 python3 benchmarks/run.py --only gpu.; return; fi
  timeout "$limit" python3 benchmarks/gpu/gpu_bench.py --device "$device" --tiny --peers eager --rounds 2 --seconds 0.01
}

failed=0
for step in "${steps[@]}"; do
  declare -F "step_$step" > /dev/null || { echo "gpu_check: no such step: $step" >&2; exit 2; }
  begin=$SECONDS
  ( "step_$step" ) > "$logs/$step.log" 2>&1
  status=$?
  case $status in 0) word=passed ;; 77) word=skipped ;; *) word=FAILED failed=1 ;; esac
  # The line of GoogleTest or pytest that counts, or the last.
  note=$(grep -E '^\[  PASSED  \]|^\[  FAILED  \] [0-9]+ test|^[0-9]+ (passed|failed)' "$logs/$step.log" | tr '\n' ' ')
  printf '%-12s %-8s %5d s  %s\n' "$step" $word $((SECONDS - begin)) "${note:-$(tail -1 "$logs/$step.log")}" |
    tee -a "$logs/table.txt"
done
exit $failed
