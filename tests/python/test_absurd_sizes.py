"""Sizes that nobody can mean: each call ends soon, in a value or in an exception, and the process lives on."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("absurd_calls.py")
SECONDS = 60  # of one call, on a busy machine


def run(program, *arguments):
    path = os.pathsep.join([str(PROGRAM.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.run([sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=1500,
                           env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"})
    return child.returncode, child.stdout + child.stderr


def test_every_call_ends():
    status, output = run(PROGRAM, str(SECONDS))
    wrong = [line for line in output.splitlines() if line.startswith("wrong: ")]
    assert status == 0 and not wrong, "\n".join(wrong) or output[-3000:]
    assert "done: " in output


@pytest.mark.parametrize("fault, verdict", [("import threading; threading.Event().wait()", "hangs"), ("import os; os.kill(os.getpid(), 11)", "ends with -11"),
                                            ("raise RuntimeError('std::bad_alloc')", "an internal message")])
def test_a_fault_is_found(tmp_path, fault, verdict):
    planted = tmp_path / "planted.py"
    text = PROGRAM.read_text()
    assert text.count("    return found") == 1
    planted.write_text(text.replace("    return found", f"    def planted(v):\n        {fault}\n\n    return [('planted', planted)]"))
    status, output = run(planted, "10" if verdict == "hangs" else str(SECONDS))
    assert f"{verdict}: planted(" in output, (status, output)
