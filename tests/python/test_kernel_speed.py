"""Kernels of elementwise ops against loops of scalar C, on one core, in the cache: vector instructions must show. How several cores
share the work is a matter of tests/ops/teams_test.cpp."""

import ctypes
import pathlib
import shutil
import time

import pytest

import sluice as sl

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists() or shutil.which("cc") is None, reason="no benchmarks, or no C compiler")
ELEMENTS = 1 << 15
LEAST = {"relu": 3, "gelu": 4, "add": 1.4}  # of the scalar loop's speed; 10, 8 and 2.3 with GCC 12, and relu 3.7 with GCC 14


@pytest.fixture
def one_thread():
    threads = sl.get_num_threads()
    sl.set_num_threads(1)
    yield
    sl.set_num_threads(threads)


@pytest.mark.parametrize("name", LEAST)
def test_vector_instructions_show(name, one_thread, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import kernels

    loop = getattr(kernels.naive_loops(tmp_path), name)
    given = [kernels.aligned(kernels.tensor(sl, (ELEMENTS,), seed=k).numpy()) for k in range(3)]
    x, y, _ = map(sl.from_numpy, given)
    pointers = [ctypes.c_void_p(v.ctypes.data) for v in given]
    function = kernels.NAIVE[name][2]
    rows = kernels.bursts([lambda: function(sl, x, y), lambda: loop(*pointers, ctypes.c_int64(ELEMENTS))], seconds=0.005,
                          clock=time.thread_time)
    ours, scalar = map(min, rows)
    assert scalar / ours >= LEAST[name], f"{ours * 1e6:.1f} us, a scalar loop {scalar * 1e6:.1f} us"
