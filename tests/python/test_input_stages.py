"""Input as stages of a plan: depth is quota, stages overlap, functions of batches are fused, batches vary, and workers keep the order."""

import json
import multiprocessing
import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice import data, nn
from sluice._base.tools import find_tool


def plan_viz(*arguments):
    done = subprocess.run([find_tool("plan-viz"), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def prepare(x):
    return x


class Fed(nn.Graph):
    """Preprocessing on a stream of the host, a copy to the device, and a net there; each takes what the cost file says."""

    def __init__(self, costs, device="sim:0", quota=None, fast=True):
        super().__init__(name="fed")
        self.net = nn.Linear(16, 16)
        self.config.set_device(device)
        self.config.set_cost_file(costs)
        self.config.enable_fast_quotas(fast)
        self.config.set_outputs_buffer_size(8)
        for register in quota or ():
            self.config.set_quota(register, quota[register])

    def build(self):
        x = sl.host_function(source, out=((64, 16), sl.float32))
        x = sl.host_function(prepare, x, out=((64, 16), sl.float32), stream="host:1")
        return self.net(x).tanh()


def source():
    while True:
        yield np.zeros((64, 16), np.float32)


def forecast(tmp_path, costs, **options):
    """The plan, and its period in virtual time, where each stream has cores of its own."""
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"links": [], "kernels": [{"name": name, "cost_ns": cost} for name, cost in costs.items()]}))
    graph = Fed(file, **options)
    graph.compile()
    graph.save_plan(tmp_path / "plan.json")
    told = json.loads(plan_viz("simulate", tmp_path / "plan.json", "--json", "--steps", "60", "--cores", "0"))
    return graph.plan, told["period_ns"]


def streams(plan):
    """What each stream has to do in a step."""
    found = {}
    for actor in plan["actors"]:
        for kind, index in actor["program"]:
            if kind == "run":
                found[actor["stream"]] = found.get(actor["stream"], 0) + float(plan["kernels"][index]["cost_ns"])
    return found


def test_a_step_takes_as_long_as_its_longest_stage(tmp_path):  # DL-04
    """The costs of host, copies and device are of like size. One after the other, they would take three times as long."""
    plan, period = forecast(tmp_path, {"host_function": 1e5, "host_function#2": 9e5, "*copy*": 8e5, "*linear*": 7e5, "*tanh*": 2e5})
    busy = streams(plan)
    kinds = {plan["streams"][stream]["name"].split("/")[1].rstrip("0123456789") for stream, ns in busy.items() if ns > 5e5}
    assert kinds == {"host", "copy_in", "compute", "copy_out"}
    assert period <= 1.15 * max(busy.values()) < 0.5 * sum(busy.values())


def test_two_slots_make_two_balanced_stages_work_at_the_same_time(tmp_path):  # DL-05
    costs = {"host_function": 0, "host_function#2": 9e5, "*linear*": 7e5, "*tanh*": 2e5}
    periods = [forecast(tmp_path, costs, device="cpu:0", fast=False, quota={"host_function#2": n})[1] for n in (1, 2)]
    assert periods[0] >= 1.6 * periods[1]
    plan, period = forecast(tmp_path, costs, device="cpu:0")  # which the compiler finds by itself
    assert period == periods[1] and {r["name"]: r["quota"] for r in plan["registers"]}["host_function#2"] == 2


@pytest.mark.parametrize("register", ["host_function#2", "host_function#2/copy"])
def test_the_depth_of_each_stage_is_the_quota_of_its_register(tmp_path, register):  # DAL-02
    """The host's queue and the device's are registers of their own. With more depth a step takes no longer, and less at first."""
    costs = {"host_function": 1e5, "host_function#2": 9e5, "host_function#2/copy": 5e5, "*linear*": 7e5, "*tanh*": 1e5}
    rows, most = [], {"host_function": 4, "host_function#2": 4, "host_function#2/copy": 4, "tanh": 4}
    for depth in (1, 2, 3, 4):
        plan, period = forecast(tmp_path, costs, fast=False, quota={**most, register: depth})
        quotas = {r["name"]: r["quota"] for r in plan["registers"]}
        assert {name: quotas[name] for name in most} == {**most, register: depth}
        rows.append(period)
    assert rows == sorted(rows, reverse=True) and rows[0] > 1.2 * rows[3], rows
    print("count: ns a step by depth", rows)


def test_steps_in_work_are_as_many_as_prefetch_says():  # DAL-02
    for depth in (1, 2, 3, 4):
        begun = []

        def take(x, begun=begun):
            begun.append(len(begun))
            return x

        batches = iter(data.arrays(np.arange(24.0)).batch(2).map(lambda x: sl.host_function(take, x, out=((2,), sl.float64))).prefetch(depth))
        next(batches)
        assert len(begun) <= depth + 1 and [b.tolist() for b in batches][-1] == [22, 23] and len(begun) == 12


def test_functions_of_batches_become_one_kernel(tmp_path):  # TFD-09
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    functions = (lambda x: x * 1, lambda x: x * 2, lambda x: x + 1, lambda x: x.tanh())
    pipeline = data.arrays(x).repeat().batch(8)
    for function in functions:
        pipeline = pipeline.map(function)
    graph = pipeline.as_graph()
    values, _ = graph()
    np.testing.assert_allclose(values.numpy(), np.tanh(x[:8] * 2 + 1), rtol=1e-6)
    (fused,) = [k for k in graph.plan["kernels"] if k["op"] == "fused"]
    assert [call["op"] for call in fused["attrs"]["body"]["graph"]["calls"]] == ["where", "mul", "add", "tanh"]  # nothing multiplies by 1
    assert not {"mul", "tanh"} & {k["op"] for k in graph.plan["kernels"]}
    sl.save(graph, tmp_path / "bundle")
    assert " fused " in plan_viz("devices", tmp_path / "bundle") and "tanh" not in plan_viz("stats", tmp_path / "bundle")


class Flip(nn.Graph):
    """Images of which those are flipped whose mask says so, in batches of any size."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def build(self):
        n = sl.Dim("batch", max=8)
        x, mask = sl.host_function(self.batches, out=[((n, 2, 5), sl.float32), ((n,), sl.bool)])
        return sl.where(mask.reshape(-1, 1, 1), x.flip(2), x), mask


def test_rows_are_flipped_where_the_mask_says_in_batches_of_any_size():  # DAL-09
    rng = np.random.default_rng(0)
    given = [(rng.normal(size=(n, 2, 5)).astype(np.float32), rng.random(n) < 0.5) for n in (5, 3, 8, 1)]

    def batches():
        yield from given

    graph = Flip(batches)
    for x, mask in given:
        got, _ = graph()
        expected = np.where(mask[:, None, None], x[:, :, ::-1], x)
        assert got.shape == x.shape and np.array_equal(got.numpy(), expected)
    with pytest.raises(sl.EndOfData):
        graph()[0].numpy()


class Meets:
    """A function of samples of which each waits for another: with one worker alone, it would never return."""

    def __init__(self):
        context = multiprocessing.get_context("fork")
        self.barrier = context.Barrier(2)

    def __call__(self, sample):
        self.barrier.wait(60)
        (x,) = sample
        return x * 10


def test_workers_run_at_the_same_time_and_batches_keep_their_order():  # MPP-07
    got = [batch.tolist() for batch in data.arrays(np.arange(16)).map(Meets(), workers=2, out=((), sl.int64)).batch(1)]
    assert got == [[10 * i] for i in range(16)]
