"""A plan's ledger is what its run takes: a C++ program runs in that much memory, and in less it is refused beforehand."""

import re
import resource
import subprocess

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from sluice._tools import find_tool

MIB = 1 << 20


class Wide(nn.Graph):
    """Two layers of `n` x `n` weights."""

    def __init__(self, n, budget=None):
        super().__init__(name="wide")
        self.model = nn.Sequential(nn.Linear(64, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 10)).eval()
        if budget is not None:
            self.config.set_memory_budget(budget)

    def build(self, x):
        return self.model(x)


def saved(directory, n):
    """The directory of a bundle, its input and output files, and its ledger's total."""
    graph, x = Wide(n), sl.rand(8, 64)
    y = graph(x)
    sl.save(graph, directory / f"wide{n}")
    x.numpy().tofile(directory / f"x{n}.f32")
    return directory / f"wide{n}", directory / f"x{n}.f32", y.numpy(), graph.memory()["total"]


def runs_within(limit, bundle, images, out):
    """Whether the C++ program classifies `images` with `limit` bytes of address space."""

    def confine():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    # One heap and one caller: what threads reserve would blur the measure.
    process = subprocess.run([find_tool("cpp_runner"), bundle, images, out, "1"], capture_output=True, preexec_fn=confine,
                             env={"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}, timeout=60)
    return process.returncode == 0


def smallest_limit(*program):
    low, high = 0, 8192  # MiB
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if runs_within(middle * MIB, *program) else (middle, high)
    return high * MIB


def test_runs_in_its_ledger_and_a_constant(tmp_path):  # C-01
    small, large = saved(tmp_path, 1024), saved(tmp_path, 4096)  # both large enough to use all threads
    constant = smallest_limit(*small[:2], tmp_path / "out") - small[3]
    print(f"runtime constant: {constant / MIB:.0f} MiB of address space; ledger: {large[3] / MIB:.1f} MiB")
    assert large[3] > 64 * MIB
    out = tmp_path / "out"
    assert runs_within(large[3] + constant + 2 * MIB, *large[:2], out)
    got = np.fromfile(out, np.float32).reshape(large[2].shape)
    np.testing.assert_array_equal(got, large[2])
    # The limit is real: a twentieth less is not enough.
    assert not runs_within(large[3] * 95 // 100 + constant, *large[:2], out)


def test_a_twentieth_less_is_refused_with_what_works():  # C-01
    x = sl.rand(8, 64)
    total = Wide(256).compile(x).memory()["total"]
    with pytest.raises(MemoryError, match=rf"(?s)over its memory budget.*smallest budget that works is .*{total} bytes"):
        Wide(256, budget=total * 95 // 100)(x)
    Wide(256, budget=total)(x)
