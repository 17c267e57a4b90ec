"""Weights as pages of a bundle's file, which processes share; memory that several graphs share for what they compute."""

import os
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from test_graph_threads import in_threads


class Wide(nn.Graph):
    def __init__(self, width=1024, arenas=None, model=None):
        super().__init__()
        self.model = model or nn.Sequential(nn.Linear(16, width), nn.Linear(width, width), nn.Linear(width, 3))
        if arenas:
            self.config.set_arenas(arenas)

    def build(self, x):
        return self.model(x)


class Train(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.1))

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def rows(n=4):
    return sl.from_numpy(np.random.default_rng(n).standard_normal((n, 16), np.float32))


def pages_of(path):
    """Bytes of a file in this process's memory: (had by others, too; by none)."""
    found, ours = {"Shared": 0, "Private": 0}, False
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            field, *rest = line.split()
            if not field.endswith(":"):
                ours = line.rstrip("\n").endswith(os.path.realpath(path))
            elif ours and field[:-1] in ("Shared_Clean", "Shared_Dirty", "Private_Clean", "Private_Dirty"):
                found[field.partition("_")[0]] += int(rest[0]) * 1024
    return found["Shared"], found["Private"]


@pytest.fixture
def saved(tmp_path):
    graph = Wide()
    graph(rows())
    sl.save(graph, tmp_path / "wide")
    return graph, tmp_path / "wide"


SECOND = """
import sys
sys.path.insert(0, {tests!r})
import sluice as sl
from test_shared_memory import pages_of, rows
graph = sl.load_graph({path!r})
graph(rows()).numpy()
print(*pages_of({path!r} + "/weights.safetensors"), flush=True)
sys.stdin.read()
"""


def test_two_processes_share_the_weights_of_a_bundle(saved):
    graph, path = saved
    loaded = sl.load_graph(path)
    assert np.array_equal(loaded(rows()).numpy(), graph(rows()).numpy())
    script = SECOND.format(tests=os.path.dirname(__file__), path=str(path))
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:
        shared, own = map(int, second.stdout.readline().split())
        here = pages_of(path / "weights.safetensors")
        second.stdin.close()
    assert second.returncode == 0
    most = 4 * 1024 * 1024  # of the layer in the middle
    for shared, own in ((shared, own), here):
        assert shared >= most and own < 64 * 1024, (shared, own)
    # All but the last layer's 3 biases, whose bytes are no multiple of 64.
    assert loaded.memory()["mapped"] == loaded.memory()["variables"] - 64


def test_what_a_loaded_graph_learns_is_not_written_to_its_bundle(tmp_path):
    model = nn.Linear(16, 1024)
    graph = Train(model)
    first = graph(rows()).item()
    sl.save(graph, tmp_path / "train")
    weights = (tmp_path / "train/weights.safetensors").read_bytes()
    for _ in range(2):
        loaded = sl.load_graph(tmp_path / "train")
        losses = [loaded(rows()).item() for _ in range(3)]
        assert first > losses[0] > losses[1] > losses[2]
        assert loaded.memory()["mapped"] <= loaded.memory()["constants"]
        assert (tmp_path / "train/weights.safetensors").read_bytes() == weights
    sl.save(loaded, tmp_path / "train")  # into the place of what is loaded
    assert sl.load_graph(tmp_path / "train")(rows()).item() < losses[2]


def test_a_bundle_cut_off_while_it_is_loaded_fails_its_steps(saved, run_script):
    _, path = saved
    done = run_script(f"""
import os, pytest, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import sluice as sl
from test_shared_memory import rows
graph = sl.load_graph({str(path)!r})
graph(rows()).numpy()
os.truncate({str(path / "weights.safetensors")!r}, 8192)
for _ in range(3):
    with pytest.raises(OSError, match="weights.safetensors: it was cut off while it was mapped"):
        graph(rows()).numpy()
""")
    assert done.returncode == 0, done.stderr


def test_graphs_share_the_memory_of_what_they_compute():
    arenas = sl.SharedArenas()
    model = Wide().model
    graphs = [Wide(model=model, arenas=arenas) for _ in range(3)]
    sizes = (256, 8, 32)
    held = []
    for graph, n in zip(graphs, sizes):  # the largest first
        graph.compile(rows(n))
        held.append(sl._C.memory_stats("host")["current_bytes"])
    assert held[0] == held[1] == held[2]
    expected = {n: model(rows(n)).detach().numpy() for n in sizes}

    def work(k):
        pending = []
        for i in range(15):
            n = sizes[(k + i) % 3]
            graph = graphs[(k + i) % 3]
            result = graph.try_call(rows(n)) if i % 4 == 0 else graph(rows(n))
            if result is not None:
                pending.append((n, result))
        for n, result in pending:
            assert np.allclose(result.numpy(), expected[n], atol=1e-4)

    in_threads(6, work)
    for graph in graphs:
        graph.synchronize()
        graph.close()
    with pytest.raises(TypeError, match="set_arenas: got int; must be a sluice.SharedArenas"):
        Wide().config.set_arenas(3)


def test_loaded_graphs_share_it_too(saved):
    graph, path = saved
    arenas = sl.SharedArenas()
    first = sl.load_graph(path, arenas=arenas)
    held = sl._C.memory_stats("host")["current_bytes"]
    second = sl.load_graph(path, arenas=arenas)
    assert sl._C.memory_stats("host")["current_bytes"] == held + second.memory()["packed"]
    for i in range(6):
        result = (first, second)[i % 2](rows())
        assert np.array_equal(result.numpy(), graph(rows()).numpy())
