"""Shared by the tests of the Python front end: torch is the oracle."""

import gc
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from nudged_torch import Nudged

import sluice as sl

torch.set_num_threads(1)
if os.environ.get("SLUICE_NUDGE_TORCH"):  # for as long as this process lives
    Nudged().__enter__()


def to_sl(t):
    """A torch tensor as a Sluice tensor of its own memory."""
    return sl.tensor(t.detach().numpy(), requires_grad=t.requires_grad)


def assert_same(ours, theirs, tolerance=1e-5):
    """Equal shape and dtype, and values within `tolerance` (relative, and absolute near zero)."""
    theirs = theirs.detach().resolve_conj()
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    np.testing.assert_allclose(ours.detach().numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance)


AVX512 = sl.info.as_dict()["instructions"]["oneDNN"].startswith("avx512")


def assert_same_products(ours, theirs):
    """Equal in every bit; without AVX-512 oneDNN rounds batches of products, and convolutions, otherwise for other shapes and
    epilogues."""
    if AVX512:
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=3e-7)


@pytest.fixture
def same():
    return assert_same


@pytest.fixture
def same_products():
    return assert_same_products


@pytest.fixture(scope="session")
def without_digest():
    """without_digest(bundle): takes the digest out, as who changes texts by hand does."""
    def change(bundle):
        meta = json.loads((bundle / "meta.json").read_text())
        del meta["digest"]
        (bundle / "meta.json").write_text(json.dumps(meta))

    return change


@pytest.fixture
def run_script(tmp_path):
    """Runs Python source in a new process with the same path; returns the CompletedProcess."""

    def run(source, timeout=60, arguments=(), **env):
        script = tmp_path / "script.py"
        script.write_text(source)
        path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
        return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=timeout, cwd=tmp_path,
                              env={**os.environ, "PYTHONPATH": path, **env})

    return run


@pytest.fixture(autouse=True)
def seeded():
    sl.manual_seed(0)
    torch.manual_seed(0)


class CountedLoads:
    """`_C.GraphSession`, watched: a plan is loaded into as many bytes, per space, as its ledger says."""

    def __init__(self, real):
        self.real = real

    def __call__(self, captured, options, functions):
        # The variables are tensors: on the host their memory is counted apart, on devices some may be new.
        return self.watched(lambda: self.real(captured, options, functions), lambda space: space != "host")

    def load(self, directory, options, functions):
        return self.watched(lambda: self.real.load(directory, options, functions), lambda space: True)

    def resume(self, *arguments):
        return self.watched(lambda: self.real.resume(*arguments), lambda space: space != "host")

    def watched(self, load, makes_variables):
        collecting = gc.isenabled()
        gc.disable()  # graphs of before stay, but where one has what this one needs
        collected = gc.get_stats()
        try:
            left, before, session = sl._C.graphs_left(), self.held(), load()
            now = self.held()
        finally:
            if collecting:
                gc.enable()
        if left or gc.get_stats() != collected or threading.active_count() > 1:  # graphs of before end now; others may load or drop graphs
            return session
        ledger = session.ledger()["spaces"]
        for memory in session.session_memory():
            space, arenas = memory["space"], memory["arenas"]
            assert arenas + memory["variables"] + memory["packed"] == ledger[space]
            if space in now:  # packed copies may be those of another graph
                most = arenas + memory["packed"] + memory["variables"] * makes_variables(space)
                least = arenas - memory["shared"]  # other graphs may have it already
                assert least <= now[space] - before[space] <= most, f"{space}: got {now[space] - before[space]} bytes: {memory}"
        return session

    @staticmethod
    def held():
        return {space: sl._C.memory_stats(space)["current_bytes"] for space in ("host", "sim:0")}


@pytest.fixture(autouse=True)
def ledger_is_exact(monkeypatch, request):
    """Every graph of every test takes the memory of its ledger."""
    # Graphs of aborts give theirs back when their kernels let them, while others are loaded.
    if request.module.__name__ != "test_aborts":
        monkeypatch.setattr(sl._C, "GraphSession", CountedLoads(sl._C.GraphSession))
