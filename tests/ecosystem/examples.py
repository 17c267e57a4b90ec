"""First examples of packages, each a script that runs on torch and, unchanged, on Sluice; their results must be the same.

A script in scripts/ ends with `results = {name: array}`; names of packages are those of the files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from ecosystem.beside import FOLDERS, ROOT

SCRIPTS = Path(__file__).with_name("scripts")
NAMES = sorted(p.stem for p in SCRIPTS.glob("*.py"))
_RUN = """
import runpy, sys
import numpy as np
if sys.argv[3] == "torch":
    sys.path.insert(0, sys.argv[4])
    from ecosystem.beside import declare_ops
    declare_ops()
found = runpy.run_path(sys.argv[1])["results"]
np.savez(sys.argv[2], **{k: np.asarray(v) for k, v in found.items()})
"""


def tried(name: str, seconds: int = 600) -> str:
    """What is wrong with the example on Sluice; "" where nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        runner, found = Path(folder) / "run.py", {}
        runner.write_text(_RUN)
        for side in ("torch", "sluice"):
            out = f"{folder}/{side}.npz"
            launch = ["-m", "sluice.mock_torch", "--lazy"] if side == "sluice" else []
            command = [sys.executable, "-W", "ignore", *launch, str(runner), str(SCRIPTS / f"{name}.py"), out, side, str(ROOT / "tests")]
            path = os.pathsep.join([*map(str, FOLDERS), os.environ.get("PYTHONPATH", "")])
            run = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=folder, check=False,
                                 env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HOME": folder})
            if run.returncode:
                lines = run.stderr.strip().splitlines() or [f"ended with {run.returncode}"]
                return f"{'torch too: ' if side == 'torch' else ''}{lines[-1]}"[:240]
            found[side] = dict(np.load(out))
    if found["torch"].keys() != found["sluice"].keys():
        return f"other results: {sorted(found['sluice'])}"
    for key, expected in found["torch"].items():
        got, scale = found["sluice"][key], np.abs(expected).max(initial=1e-6) if expected.dtype.kind in "fi" else 0
        if got.shape != expected.shape:
            return f"{key} has shape {got.shape}; torch's is {expected.shape}"
        if expected.dtype.kind == "f" and not np.allclose(got, expected, rtol=2e-3, atol=2e-3 * scale, equal_nan=True):
            return f"{key} differs by {np.abs(got - expected).max() / scale:.2g} of the largest"
        if expected.dtype.kind != "f" and not np.array_equal(got, expected):
            return f"{key} is {got!r:.60}; torch's is {expected!r:.60}"
    return ""
