"""Shared by the tests of the Python front end: torch is the oracle."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import sluice as sl

torch.set_num_threads(1)


def to_sl(t):
    """A torch tensor as a Sluice tensor of its own memory."""
    return sl.tensor(t.detach().numpy(), requires_grad=t.requires_grad)


def assert_same(ours, theirs, tolerance=1e-5):
    """Equal shape and dtype, and values within `tolerance` (relative, and absolute near zero)."""
    theirs = theirs.detach()
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    np.testing.assert_allclose(ours.detach().numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance)


@pytest.fixture
def same():
    return assert_same


@pytest.fixture
def run_script(tmp_path):
    """Runs Python source in a new process with the same path; returns the CompletedProcess."""

    def run(source, timeout=60, **env):
        script = tmp_path / "script.py"
        script.write_text(source)
        path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
        return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=timeout, cwd=tmp_path,
                              env={**os.environ, "PYTHONPATH": path, **env})

    return run


@pytest.fixture(autouse=True)
def seeded():
    sl.manual_seed(0)
    torch.manual_seed(0)
