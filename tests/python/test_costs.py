"""The costs of kernels steer the slots of registers: predicted, from a file, or measured."""

import fcntl
import json
import os
import subprocess
import sys
import time

import pytest

import sluice as sl
import sluice.nn as nn
from sluice._base.tools import find_tool


class Stages(nn.Graph):
    """A stage on a host stream, and one on a compute stream."""

    def __init__(self, cost_file=None, fast=True):
        super().__init__(name="stages")
        if cost_file is not None:
            self.config.set_cost_file(cost_file)
        self.config.enable_fast_quotas(fast)
        self.config.set_cores(1)  # a plan may otherwise give streams other cores, of which nothing was measured

    def build(self, x):
        with sl.stream("host"):
            y = x.exp()
        return y.tanh()


def slots(graph):
    graph.compile(sl.ones(64, 64))
    (quota,) = [r["quota"] for r in graph.plan["registers"] if r["name"].startswith("exp")]
    return quota


def cost_file(tmp_path, **ns):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"links": [], "kernels": [{"name": f"*{name}*", "cost_ns": str(v)} for name, v in ns.items()]}))
    return path


@pytest.mark.parametrize("exp, tanh, quota", [(1000, 1000, 2), (1000, 0, 1), (0, 1000, 1), (1000, 900, 2)])
def test_a_cost_file_says_which_stages_are_balanced(exp, tanh, quota, tmp_path):
    path = cost_file(tmp_path, exp=exp, tanh=tanh)
    assert slots(Stages(path)) == quota
    assert slots(Stages(path, fast=False)) == 1


def test_a_cost_file_that_is_not_there_yet_changes_nothing(tmp_path):
    assert slots(Stages(tmp_path / "none.json")) == slots(Stages())


def test_a_wrong_cost_file_is_named(tmp_path):
    (tmp_path / "costs.json").write_text('{"kernels": [{"name": "x"}], "links": []}')
    with pytest.raises(ValueError, match=r"costs.json: kernels\[0\].cost_ns: missing"):
        slots(Stages(tmp_path / "costs.json"))


def measured(path):
    """The entries of a cost file by op."""
    return {k["op"]: k for k in json.loads(path.read_text())["measured"]}


def test_costs_are_measured_and_read_again(tmp_path):
    graph, path = Stages(), tmp_path / "costs.json"
    graph.config.enable_trace()
    for _ in range(5):
        graph(sl.ones(64, 64))
    graph.save_costs(path)
    costs = measured(path)
    assert set(costs) == {k["op"] for k in graph.plan["kernels"]}
    assert all(float(k["mean_ns"]) >= float(k["min_ns"]) > 0 and 1 <= k["n"] <= 5 for k in costs.values())
    again = Stages(path)
    again.compile(sl.ones(64, 64))
    assert {k["op"]: float(k["cost_ns"]) for k in again.plan["kernels"]} == {op: float(k["mean_ns"]) for op, k in costs.items()}
    assert again.plan["options"]["costs"] == len(costs)


def test_a_history_grows_and_serves_other_graphs(tmp_path):
    class Other(nn.Graph):
        def __init__(self):
            super().__init__(name="other")
            self.config.set_cores(1)  # as in the graph that was measured

        def build(self, x):
            with sl.stream("host"):
                y = x.exp()
            return (y + 1).sum()

    graph, path = Stages(), tmp_path / "costs.json"
    graph.config.enable_trace()
    graph(sl.ones(64, 64))
    graph.save_costs(path)
    one = measured(path)
    for _ in range(7):
        graph(sl.ones(64, 64))
    graph.save_costs(path)
    both = measured(path)
    assert set(both) == set(one) and all(1 < k["n"] <= 8 for k in both.values())
    other = Other()
    other.config.set_cost_file(path)
    other.compile(sl.ones(64, 64))
    (exp,) = [k for k in other.plan["kernels"] if k["op"] == "exp"]
    assert float(exp["cost_ns"]) == float(both["exp"]["mean_ns"])
    assert other.plan["options"]["costs"] == 1
    sizes = Other()
    sizes.config.set_cost_file(path)
    sizes.compile(sl.ones(32, 64))
    assert "costs" not in sizes.plan["options"]


def test_saving_over_what_is_no_cost_file_is_an_error_and_keeps_it(tmp_path):
    graph, path = Stages(), tmp_path / "notes.txt"
    path.write_text("notes")
    graph(sl.ones(64, 64))
    with pytest.raises(ValueError, match="notes.txt: not a complete JSON document"):
        graph.save_costs(path)
    assert path.read_text() == "notes"
    assert list(tmp_path.iterdir()) == [path]


def test_who_holds_the_directory_is_awaited_and_not_for_ever(tmp_path, monkeypatch):
    from sluice._graph import costs

    graph, path = Stages(), tmp_path / "costs.json"
    graph(sl.ones(64, 64))
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    monkeypatch.setattr(costs, "_LOCK_TIMEOUT_S", 0.05)
    with pytest.raises(TimeoutError, match="locked by another process for 0.05 s"):
        graph.save_costs(path)
    os.close(holder)
    graph.save_costs(path)
    assert path.exists()


def test_processes_add_to_one_file(tmp_path):
    path = tmp_path / "costs.json"
    script = f"""
import sluice as sl

class Double(sl.nn.Graph):
    def build(self, x):
        return x.exp()

graph = Double()
graph.config.enable_trace()
graph(sl.ones(64, 64))
for _ in range(20):
    graph.save_costs({str(path)!r})
graph(sl.ones(64, 64))
graph.save_costs({str(path)!r})
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [subprocess.Popen([sys.executable, "-c", script], env=env, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in started:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
    assert sum(k["n"] for k in json.loads(path.read_text())["measured"]) == 6, path.read_text()


def test_the_cost_cache_measures_what_is_not_known_once(tmp_path):
    class Cached(Stages):
        def __init__(self):
            super().__init__()
            self.config.enable_cost_cache(tmp_path)

    def calls(graph, *size):
        for _ in range(20):
            y = graph(sl.ones(*size))
            y.numpy()  # so that it has run
        return graph

    predicted = [k["cost_ns"] for k in Stages().compile(sl.ones(64, 64)).plan["kernels"]]
    graph = calls(Cached(), 64, 64)
    assert [k["cost_ns"] for k in graph.plan["kernels"]] == predicted
    (path,) = tmp_path.iterdir()
    costs = measured(path)
    again = Cached().compile(sl.ones(64, 64))
    assert {k["op"]: float(k["cost_ns"]) for k in again.plan["kernels"]} == {op: float(k["mean_ns"]) for op, k in costs.items()}
    before = path.read_text()
    calls(again, 64, 64)
    assert path.read_text() == before
    calls(Cached(), 32, 64)  # other kernels: the same file
    assert list(tmp_path.iterdir()) == [path]
    assert len(json.loads(path.read_text())["measured"]) == 2 * len(costs)


class Sleeping(nn.Graph):
    """Two stages of functions that sleep, on two streams."""

    def __init__(self, cost_file=None):
        super().__init__()
        if cost_file is not None:
            self.config.set_cost_file(cost_file)
        self.config.set_outputs_buffer_size(4)

    def build(self, x):
        def load(x):
            time.sleep(0.010)
            return x

        def store(x):
            time.sleep(0.020)
            return x

        y = sl.host_function(load, x, out=((4,), sl.float32))
        return sl.host_function(store, y, out=((4,), sl.float32), stream="host:1")


def period_s(graph, steps=20):
    """Seconds per step of calls that overlap."""
    x = sl.ones(4)
    graph(x).numpy()
    begin = time.perf_counter()
    for _ in range(steps):
        y = graph(x)
    y.numpy()
    return (time.perf_counter() - begin) / steps


def test_the_next_run_is_predicted_from_what_was_measured(tmp_path):  # STP-02
    def error():
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        graph = Sleeping()
        graph.config.enable_trace()
        period_s(graph)
        graph.save_costs(path)
        later = Sleeping(path)
        measured_s = period_s(later)
        (tmp_path / "plan").write_text(json.dumps(later.plan))
        text = subprocess.check_output([find_tool("plan-viz"), "simulate", tmp_path / "plan", "--steps", "32", "--json"])
        return abs(json.loads(text)["period_ns"] / 1e9 / measured_s - 1)

    assert any(error() < 0.10 for _ in range(20))  # other work of the machine may disturb some


TURNS = """
import json
import numpy as np
import sluice as sl

def loads(x):
    return x

class Net(sl.nn.Graph):
    def __init__(self, costs):
        super().__init__(name="net")
        self.config.set_cost_file(costs)

    def build(self, x):
        return sl.host_function(loads, x, out=((512, 512), sl.float32)) @ sl.ones(512, 512)

def cores():
    graph = Net("costs.json")
    graph.compile(sl.ones(512, 512))
    (found,) = [s["cores"] for s in graph.plan["streams"] if "compute0" in s["name"]]
    graph.close()
    return found

assert cores() == 3  # of 4: nobody knows how long the function takes
graph = Net("none.json")
graph.config.enable_trace()
for _ in range(3):
    graph(sl.ones(512, 512)).numpy()
graph.save_costs("costs.json")
graph.close()
costs = json.load(open("costs.json"))
found = []
for ns in (10, 10**9):
    for kernel in costs["measured"]:
        for name in ("mean_ns", "min_ns", "max_ns"):
            if kernel["op"] == "host_function":
                kernel[name] = str(ns) if isinstance(kernel[name], str) else ns
    json.dump(costs, open("costs.json", "w"))
    found.append(cores())
assert found == [4, 3], found  # a short one takes turns with the kernels
"""


def test_a_measured_function_takes_turns_where_that_is_faster(run_script):
    done = run_script(TURNS, SLUICE_CORES="4")
    assert done.returncode == 0, done.stderr
