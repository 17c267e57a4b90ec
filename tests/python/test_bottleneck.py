"""plan-viz bottleneck: its advice, followed by the means that users have, comes true in virtual time."""

import json
import subprocess

import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool


class Stages(nn.Graph):
    """Three stages on three streams, with a slot for each register between them."""

    def __init__(self, costs, quotas):
        super().__init__(name="stages")
        self.net = nn.Linear(32, 32)
        self.config.set_cost_file(costs)
        self.config.enable_fast_quotas(False)
        for register, n in quotas.items():
            self.config.set_quota(register, n)

    def build(self, x):
        with sl.stream("host"):
            a = x.sin().exp()
        with sl.stream("host:1"):
            b = a.cos() + a
        return self.net(b).tanh().sum()


COSTS = {"sin": 3e5, "exp": 1e5, "cos": 5e5, "fused": 4e5, "linear": 2e5, "tanh": 1e5, "sum": 3e5, "add": 2e5}


def plan_of(tmp_path, costs, quotas):
    """A plan with these costs, by op, and slots; compiled from the program as a user would."""
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"links": [], "kernels": [{"name": name, "cost_ns": cost} for name, cost in costs.items()]}))
    graph = Stages(file, quotas)
    graph.compile(sl.zeros(4, 32))
    path = tmp_path / "plan.json"
    graph.save_plan(path)
    return path, graph.plan


def view(name, path):
    alone = ["--cores", "0"]  # each stream computes on cores of its own, on any machine
    done = subprocess.run([find_tool("plan-viz"), name, str(path), "--json", "--steps", "40", *alone], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def kernel_costs(plan):
    return {k["name"]: COSTS[k["op"]] for k in plan["kernels"] if k["op"] in COSTS}


def test_advice_comes_true_within_a_tenth(tmp_path):  # C-06
    _, plan = plan_of(tmp_path, {"*": 1e5}, {})
    quotas = {r["name"]: 1 for r in plan["registers"] if r["bytes"] and r["name"] not in ("x", "output")}
    costs = kernel_costs(plan)
    path, _ = plan_of(tmp_path, costs, quotas)
    now = view("bottleneck", path)
    assert now["period_ns"] == pytest.approx(view("simulate", path)["period_ns"])
    assert now["slots"] and now["kernels"], now
    best = 0.0
    for advice in now["slots"]:
        path, _ = plan_of(tmp_path, costs, {**quotas, advice["register"]: quotas[advice["register"]] + 1})
        period = view("simulate", path)["period_ns"]
        assert period == pytest.approx(advice["period_ns"], rel=0.1), advice
        best = max(best, now["period_ns"] - period)
    for advice in now["kernels"]:
        path, _ = plan_of(tmp_path, {**costs, **{name: costs[name] / 2 for name in advice["names"]}}, quotas)
        period = view("simulate", path)["period_ns"]
        assert period == pytest.approx(advice["period_ns"], rel=0.1), advice
        best = max(best, now["period_ns"] - period)
    assert best > 0.1 * now["period_ns"]  # some of it helps


def test_following_the_best_advice_again_and_again_ends_at_the_busiest_stream(tmp_path):  # C-06
    _, plan = plan_of(tmp_path, {"*": 1e5}, {})
    quotas = {r["name"]: 1 for r in plan["registers"] if r["bytes"] and r["name"] not in ("x", "output")}
    costs = kernel_costs(plan)
    for _ in range(8):
        path, plan = plan_of(tmp_path, costs, quotas)
        now = view("bottleneck", path)
        gains = [advice for advice in now["slots"] if advice["period_ns"] < now["period_ns"]]
        if not gains:
            break
        best = min(gains, key=lambda advice: advice["period_ns"])
        quotas[best["register"]] += 1
    streams = {a["name"]: sum(costs.get(plan["kernels"][index]["name"], 0) for kind, index in a["program"] if kind == "run")
               for a in plan["actors"]}
    assert now["period_ns"] == pytest.approx(max(streams.values()), rel=0.01), (now, streams)
