"""Every sample of every op as a model: ONNX Runtime gives what the op gives."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
from onnx_models import INSTALLED, needs_onnx

pytestmark = needs_onnx
if INSTALLED:
    import onnx
    import onnxruntime

DTYPES = {"float": "float32", "double": "float64"}
PROGRAM = pathlib.Path(os.environ.get("SLUICE_BUILD", "build/release")) / "tests/ops_tests"
# ONNX has the ops for doubles, and ONNX Runtime has not.
NO_DOUBLES = {"acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "erf", "erfc", "ndtr", "sinh", "tan"}


def read(stem, port):
    dtype = port.type.removeprefix("tensor(").removesuffix(")")
    return np.fromfile(f"{stem}.{port.name}", DTYPES.get(dtype, dtype)).reshape(port.shape)


def wrong(path, session):
    """What is wrong with the results, or None."""
    stem = path.with_suffix("")
    got = session.run(None, {p.name: read(stem, p) for p in session.get_inputs()})
    for port, mine in zip(session.get_outputs(), got):
        wanted = read(stem, port)
        finite = wanted[np.isfinite(wanted)]
        size = float(np.abs(finite).max()) if finite.size else 1.0
        close = np.allclose(mine, wanted, rtol=2e-4, atol=2e-5 * max(1.0, size), equal_nan=True)
        if not close if wanted.dtype.kind == "f" else not np.array_equal(mine, wanted):
            return f"{port.name}: {mine.ravel()[:8]} and {wanted.ravel()[:8]}"
    return None


def test_every_sample_is_equal_in_onnxruntime(tmp_path):
    if not PROGRAM.exists():
        pytest.skip("the C++ tests are not built")
    made = subprocess.run([PROGRAM, "--gtest_filter=OpsInOnnx.*"], env=os.environ | {"SLUICE_ONNX_SAMPLES": str(tmp_path)},
                          capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stdout[-4000:]
    onnxruntime.set_default_logger_severity(4)
    faults, right, lacking = [], 0, set()
    for path in sorted(tmp_path.glob("*.onnx")):
        onnx.checker.check_model(str(path), full_check=True)
        try:
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  it has a class of its own for each code
            assert "NOT_IMPLEMENTED" in str(error), (path.stem, error)
            lacking.add(path.stem.split(".")[0])
            continue
        if any("bfloat16" in p.type for p in [*session.get_inputs(), *session.get_outputs()]):
            continue  # NumPy has no such numbers
        fault = wrong(path, session)
        right += fault is None
        if fault:
            faults.append(f"{path.stem}: {fault}")
    print(f"count: ops as ONNX in ONNX Runtime: {right} samples")
    assert not faults and lacking <= NO_DOUBLES, (faults, lacking - NO_DOUBLES)
