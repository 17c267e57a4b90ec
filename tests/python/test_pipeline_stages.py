"""Pipelines whose stages work at the same time, over micro-batches."""

import itertools
import json

import numpy as np
import pytest

import sluice as sl
from sluice import nn


class Stages(nn.Graph):
    """`count` stages on the devices of `kind`, or on one."""

    def __init__(self, count, n=8, kind=None, staged=True, width=32):
        super().__init__(name="stages")
        sl.manual_seed(0)
        self.stages = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)) for _ in range(count))
        self.add_optimizer(sl.optim.AdamW(self.stages.parameters(), lr=0.01))
        self.config.set_gradient_accumulation_steps(n)
        for i, stage in enumerate(self.stages):
            place = kind and sl.placement(kind, [i])
            if place:
                stage.to_global(place, sl.sbp.broadcast)
            stage.config.set_stage(i if staged else None, place)

    def build(self, x, y):
        for stage in self.stages:
            x = stage(x)
        loss = nn.functional.mse_loss(x, y)
        loss.backward()
        return loss


def losses_of(graph, rows=32, width=32, steps=4):
    rng = np.random.default_rng(0)
    data = [[sl.tensor(rng.normal(size=(rows, width)).astype(np.float32)) for _ in range(2)] for _ in range(steps)]
    return [graph(*pair).numpy().tobytes() for pair in data]


@pytest.mark.parametrize("count", [2, 3])
def test_stages_compute_the_bits_of_one_device(count):  # NG-30, GT-20
    one = losses_of(Stages(count))
    assert losses_of(Stages(count, kind="sim")) == one
    assert losses_of(Stages(count, kind="sim", staged=False)) == one


@pytest.mark.parametrize("count", [2, 3])
def test_one_backward_for_one_forward_follows_from_the_tokens_alone(count):  # NG-30
    graph = Stages(count, kind="sim", n=6)
    graph.config.enable_trace()
    losses_of(graph, rows=12, steps=3)
    trace = json.loads(graph._call.session.take_trace())["traceEvents"]
    for i in range(count):
        forward = graph.plan["actors"][_actor(graph.plan, f"stages.{i}.0/linear")]["name"]
        ordered = [e["name"] for e in trace if e.get("cat") == "firing" and e["name"].startswith(f"sim:{i}/compute")]
        ahead = most = 0
        for name, group in itertools.groupby(ordered):
            times = len(list(group))
            if name == forward:
                ahead += times
                most = max(most, ahead)
            elif not name.endswith("#3"):
                ahead -= times
        if i < count - 1:
            assert 1 < most <= count - i, (i, ordered)
            order = [r for r in graph.plan["registers"] if r["name"].endswith(f"-> {forward}") and r["initial_tokens"] > 1]
            assert [r["initial_tokens"] for r in order] == [count - i]
            kept = [r["quota"] for r in graph.plan["registers"] if r["name"].startswith(f"stages.{i}.1/tanh")]
            assert kept == [count - i]


def _actor(plan, kernel):
    index = next(i for i, k in enumerate(plan["kernels"]) if k["name"] == kernel)
    return next(a for a, actor in enumerate(plan["actors"]) if ["run", index] in [list(i) for i in actor["program"]])


def test_without_a_stage_the_next_forward_waits_for_the_backward():
    plan = Stages(2, kind="sim", staged=False)
    losses_of(plan, steps=1)
    assert {r["quota"] for r in plan.plan["registers"] if r["name"].startswith("stages.0.1/tanh")} == {1}


def test_the_stages_are_part_of_the_plan():
    graph = Stages(2, kind="sim")
    losses_of(graph, steps=1)
    assert graph.plan["options"]["stage.stages.0"] == 0 and graph.plan["options"]["stage.stages.1"] == 1


def test_stages_of_one_micro_batch_are_told_to_change_nothing(capfd):
    losses_of(Stages(2, n=1, kind="sim"), steps=1)
    assert "its stages change nothing: a step is one micro-batch; set_gradient_accumulation_steps(n)" in capfd.readouterr().err


@pytest.mark.parametrize("stage", [-1, 1.5, "0", True, 5000])
def test_a_stage_that_is_none(stage):
    with pytest.raises(ValueError, match="stage_id: got .*; must be an int in 0 to 4095, or None"):
        nn.Linear(1, 1).config.stage_id = stage
