"""Kernels that are run to find their fastest implementation: once for each, here and in later processes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl
from sluice import info, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 16, 1)

    def forward(self, x):
        return self.second(self.first(x).tanh())


class Graph(nn.Graph):
    def __init__(self, net, trials=True, train=False):
        super().__init__(name="trials")
        self.net, self.train = net, train
        if train:
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))
        self.config.enable_kernel_trial_run(trials)

    def build(self, x):
        y = self.net(x)
        if self.train:
            y = y.square().mean()
            y.backward()
        return y


@pytest.fixture
def counted():
    """The trials that have been searched since the last call."""
    last = info.kernel_trials()

    def since():
        nonlocal last
        before, last = last, info.kernel_trials()
        return {key: last[key] - before[key] for key in ("searches", "read", "hits")}

    return since


def convolutions(graph):
    return [k for k in graph.plan["kernels"] if "conv" in k["op"]]


@pytest.mark.parametrize("train", [False, True])
def test_results_are_those_of_the_usual_kernels(train, counted, capfd):  # CFG-10
    x, found = sl.randn(2, 16, 20 + train, 20), []
    for trials in (False, True):
        sl.manual_seed(0)
        graph = Graph(Net(), trials, train)
        found.append([graph(x).numpy() for _ in range(3)] + [p.detach().numpy() for p in graph.net.parameters()])
        printed = capfd.readouterr().err
        searches = counted()["searches"]
        assert bool(searches) == trials == ("<- chosen" in printed)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    assert searches == len(convolutions(graph)) == printed.count("<- chosen")
    assert graph.plan["options"]["kernel_trials"] is True
    for kernel in convolutions(graph):
        chosen = kernel["attrs"].get("implementation")
        assert chosen is None or f"{chosen}  <- chosen" in printed


def test_the_fastest_is_chosen_and_never_a_slower_one(capfd):  # CFG-10
    mark = sl._C.kernel_trials_used()
    Graph(Net(), train=True).compile(sl.randn(2, 16, 24, 24))
    trials = sl._C.kernel_trials(mark)
    assert len(trials) == 5
    for kernel, candidates, chosen in trials:
        times = dict(candidates)
        usual = candidates[0][1]
        assert len(times) == len(candidates) >= 2 and all(0 < ns < float("inf") for ns in times.values()), kernel
        assert min(times.values()) >= 0.97 * usual if not chosen else times[chosen] == min(times.values()) < 0.97 * usual


def test_a_shape_is_searched_once(counted):  # DL-11
    net = Net()
    shapes = [(1, 16, 10, 10 + i % 4) for i in range(12)]
    for number, shape in enumerate(shapes):
        Graph(net).compile(sl.randn(*shape))
        now = counted()
        assert now == ({"searches": 2, "read": 0, "hits": 0} if number < 4 else {"searches": 0, "read": 0, "hits": 2})
    graph = Graph(net)
    graph(sl.randn(1, 16, 10, 10))
    counted()
    for _ in range(3):
        graph(sl.randn(1, 16, 10, 10))
    assert counted() == {"searches": 0, "read": 0, "hits": 0}


def test_the_log_says_what_was_searched(capfd):  # DL-11
    x = sl.randn(1, 16, 9, 31)
    before = info.log_spec()
    sl.set_log("warn,kernels=info")
    try:
        for _ in range(2):
            Graph(Net()).compile(x)
    finally:
        sl.set_log(before)
    assert capfd.readouterr().err.count(": searched") == 2


SCRIPT = """
import json
import sluice as sl
from sluice import info, nn
class Graph(nn.Graph):
    def __init__(self):
        super().__init__(name="trials")
        self.net = nn.Sequential(nn.Conv2d(8, 16, 3), nn.Tanh(), nn.Conv2d(16, 8, 3))
        self.config.enable_kernel_trial_run()
    def build(self, x):
        return self.net(x)
graph = Graph()
graph.compile(sl.ones(1, 8, 12, 12))
print(json.dumps([info.kernel_trials(), [k["attrs"].get("implementation") for k in graph.plan["kernels"]]]))
"""


def test_a_second_process_searches_nothing(tmp_path):  # DL-12
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def run(**env):
        path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=120,
                              env={**os.environ, "PYTHONPATH": path, "SLUICE_CACHE_DIR": str(tmp_path / "one"), **env})
        assert done.returncode == 0, done.stderr
        stats, chosen = json.loads(done.stdout)
        assert done.stderr.count("<- chosen") == 2  # known ones are printed, too
        return stats["searches"], stats["read"], chosen

    first = run(SLUICE_CACHE="on")
    assert first[:2] == (2, 0)
    assert run(SLUICE_CACHE="on") == (0, 2, first[2])
    assert run(SLUICE_CACHE="on", SLUICE_CACHE_DIR=str(tmp_path / "other"))[:2] == (2, 0)
    assert run(SLUICE_CACHE="off")[:2] == (2, 0)
    files = list((tmp_path / "one" / "kernels").iterdir())
    assert len(files) == 2
    files[0].write_bytes(files[0].read_bytes()[:-1] + b"x")
    assert run(SLUICE_CACHE="on")[:2] == (1, 1)  # what was changed is searched for again
    assert run(SLUICE_CACHE="on", ONEDNN_MAX_CPU_ISA="SSE41", DNNL_MAX_CPU_ISA="SSE41")[:2] != (0, 2)  # other kernels


def test_an_option_that_searched_nothing_says_so():
    class Other(nn.Graph):
        def build(self, x):
            return x.tanh()

    graph = Other()
    graph.config.enable_kernel_trial_run()
    graph.compile(sl.ones(3))
    with pytest.warns(UserWarning, match=r"enable_kernel_trial_run\(\) has changed nothing"):
        graph.config.report()
