#!/usr/bin/env bash
# The case study; then the same file of the net with torch, where that is installed. Every line must say the same classes.
# usage: examples/resnet101/run.sh [--size 224] [IMAGE ...]      OUT=out/resnet101
set -euo pipefail
here=$(dirname "$0") out=${OUT:-out/resnet101}
python "$here/case_study.py" --out "$out" "$@"
if python -c 'import torch' 2>/dev/null; then
  python "$here/net.py" --state "$out/state.npz" "$@"
fi
