#!/usr/bin/env bash
# The Python tests on what other processors would run: our kernels limited to an instruction set, torch's and MKL's limited
# likewise; and beside a torch whose last bits are others (tests/python/nudged_torch.py).
# usage: tools/check_isas.sh BUILD_DIR [LEVEL [PYTEST_ARGUMENT...]]   LEVEL: baseline, avx2, avx512 or nudged; all by default
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1") levels=${2:-baseline avx2 avx512 nudged}
shift $(($# < 2 ? $# : 2))
export SLUICE_BUILD=$build PYTHONPATH=$build/python SLUICE_LONG=0  # soak tests in part
failed=()
for level in $levels; do
  more=()
  case $level in
  baseline) limits="SLUICE_MAX_ISA=baseline ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE" ;;
  avx2) limits="SLUICE_MAX_ISA=avx2 ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2" ;;
  avx512) limits="SLUICE_MAX_ISA=avx512 MKL_CBWR=AVX512" ;;
  nudged)  # torch cannot make its masks, a subclass of tensors, of what its dispatcher has handed to Python
    limits="SLUICE_NUDGE_TORCH=1" more=(--deselect tests/python/test_attention.py::test_causal_masks_have_two_corners)
    ;;
  *) echo "check_isas: LEVEL: got $level; must be baseline, avx2, avx512 or nudged" >&2; exit 2 ;;
  esac
  echo "== $level: $limits"
  env $limits "${PYTHON:-.venv/bin/python}" -m pytest -q "${more[@]}" "${@:-tests/python}" || failed+=("$level")
done
[ ${#failed[@]} -eq 0 ] || { echo "check_isas: FAILED: ${failed[*]}"; exit 1; }
