"""What kernels cost steers the slots of registers: predicted, from a file, or measured."""

import json

import pytest

import sluice as sl
import sluice.nn as nn


class Stages(nn.Graph):
    """A stage on a host stream, and one on a compute stream."""

    def __init__(self, cost_file=None, fast=True):
        super().__init__(name="stages")
        if cost_file is not None:
            self.config.set_cost_file(cost_file)
        self.config.enable_fast_quotas(fast)

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


def test_costs_are_measured_and_read_again(tmp_path):
    graph, path = Stages(), tmp_path / "costs.json"
    graph.config.enable_trace()
    for _ in range(5):
        graph(sl.ones(64, 64))
    graph.save_costs(path)
    costs = {k["name"]: float(k["cost_ns"]) for k in json.loads(path.read_text())["kernels"]}
    assert set(costs) == {k["name"] for k in graph.plan["kernels"]}
    assert all(ns > 0 for ns in costs.values())
    again = Stages(path)
    again.compile(sl.ones(64, 64))
    assert {k["name"]: float(k["cost_ns"]) for k in again.plan["kernels"]} == costs


def test_the_cost_cache_measures_the_first_steps_and_is_read_when_compiled_again(tmp_path):
    class Cached(Stages):
        def __init__(self):
            super().__init__()
            self.config.enable_cost_cache(tmp_path)

    graph = Cached()
    predicted = [k["cost_ns"] for k in Stages().compile(sl.ones(64, 64)).plan["kernels"]]
    for _ in range(20):
        y = graph(sl.ones(64, 64))
        y.numpy()  # so that it has run
    assert [k["cost_ns"] for k in graph.plan["kernels"]] == predicted
    (path,) = tmp_path.iterdir()
    costs = {k["name"]: float(k["cost_ns"]) for k in json.loads(path.read_text())["kernels"]}
    again = Cached().compile(sl.ones(64, 64))
    assert {k["name"]: float(k["cost_ns"]) for k in again.plan["kernels"]} == costs
    before = path.read_text()
    for _ in range(20):
        again(sl.ones(64, 64))
    assert path.read_text() == before
    Cached().compile(sl.ones(32, 64))  # another graph: its own file, once it has run
    assert [p for p in tmp_path.iterdir()] == [path]
