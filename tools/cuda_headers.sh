#!/usr/bin/env bash
# Fetches what the CUDA backend is compiled against beside the toolkit: the headers of cuBLASLt, cuDNN and NCCL, out of
# their Python packages (1.3 GB to load, of which 6 MB are kept). usage: tools/cuda_headers.sh PYTHON DIR
set -euo pipefail
python=$1 dir=$2
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$wheels" -r requirements-cuda.txt
"$python" - "$wheels" "$dir" <<'PY'
import pathlib
import re
import sys
import zipfile

wheels, out = map(pathlib.Path, sys.argv[1:])
for wheel in sorted(wheels.glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if header := re.fullmatch(r"nvidia/\w+/include/(.*\w)", name):
                (out / header[1]).parent.mkdir(parents=True, exist_ok=True)
                (out / header[1]).write_bytes(archive.read(name))
PY
