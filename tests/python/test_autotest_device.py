"""Every op once on a device with memory of its own: forward, gradients, views, in-place, out=, and in a graph there."""

import subprocess
import sys


def test_every_op_on_a_simulated_device():
    run = subprocess.run([sys.executable, "-m", "sluice.testing.autotest", "--device", "sim:0", "--n", "1", "--seed", "7"],
                         capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "800" < run.stdout.splitlines()[-1].split()[0], run.stdout
