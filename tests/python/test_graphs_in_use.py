"""Graphs as programs use them: texts that can be compared, values that are given per step, callers and readers of any kind, stages."""

import difflib
import json
import subprocess
import threading

import numpy as np
import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool


class Net(nn.Module):
    def __init__(self, bend="tanh"):
        super().__init__()
        self.up, self.down, self.bend = nn.Linear(4, 8), nn.Linear(8, 3), bend

    def forward(self, x):
        return self.down(getattr(self.up(x), self.bend)())


def test_texts_of_a_graph_are_the_same_again_and_differ_by_what_was_changed(tmp_path):  # PS-14
    x, texts = sl.zeros(2, 4), {}
    for name, bend in (("one", "tanh"), ("again", "tanh"), ("other", "sigmoid")):
        net = Net(bend)
        net.bend = bend
        texts[name] = sl.lower(net, x).text()
        (tmp_path / name).write_text(texts[name])
    assert texts["one"] == texts["again"]
    lines = [line for line in difflib.unified_diff(texts["one"].splitlines(), texts["other"].splitlines(), n=0, lineterm="")
             if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert len(lines) == 2 and "tanh" in lines[0] and "sigmoid" in lines[1], lines


def test_a_traced_layer_has_the_parameters_of_its_module():  # PS-09
    net, x = Net(), sl.randn(5, 4)
    traced = sl.lower(net, x).compile()
    np.testing.assert_allclose(traced(x).numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    before = traced(x).numpy()
    with sl.no_grad():
        net.up.weight.mul_(2)
        net.down.bias.add_(1)
    np.testing.assert_allclose(traced(x).numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert np.abs(traced(x).numpy() - before).min() > 1e-3
    with pytest.raises(sl.errors.Error, match="jit.trace: use sluice.nn.Graph, or sluice.lower"):
        sl.jit.trace(net, x)


class Scaled(nn.Graph):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)

    def build(self, x, scale):
        return self.net(x) * scale


def test_a_value_given_per_step_needs_no_other_plan(capfd):  # MPP-08
    graph, x = Scaled(), sl.randn(2, 3)
    sl.set_log("info,compiler=info")
    try:
        plain = graph(x, sl.tensor(1.0)).numpy()
        for scale in (2.0, -0.5, 0.0):
            np.testing.assert_allclose(graph(x, sl.tensor(scale)).numpy(), plain * scale, rtol=1e-6)
    finally:
        sl.set_log("warn")
    compiled = [line for line in capfd.readouterr().err.splitlines() if "compiled" in line]
    assert len(compiled) <= 1, compiled


def test_any_thread_calls_and_any_number_of_readers_read():  # RAY-14
    """Whoever has not compiled a graph calls it, two graphs are at work at the same time, and a result is read, kept and passed on."""
    first, second = Scaled(), Scaled()
    x, one = sl.randn(2, 3), sl.tensor(1.0)
    first(x, one)  # compiled by this thread
    barrier, found = threading.Barrier(2), {}

    def call(name):
        barrier.wait(60)
        found[name] = [first(x, sl.tensor(float(i))) for i in range(8)]

    threads = [threading.Thread(target=call, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    weight, bias = first.net.weight.detach().numpy(), first.net.bias.detach().numpy()
    expected = x.numpy() @ weight.T + bias
    for results in found.values():
        for i, result in enumerate(results):
            for _ in range(2):
                np.testing.assert_allclose(result.numpy(), expected * i, rtol=1e-4, atol=1e-5)
    result = first(x, one)
    passed = [second(result, one), first(result, one), result + 1]  # before it is read, and more than once
    theirs = second.net(result.detach()).detach().numpy()
    np.testing.assert_allclose(passed[0].numpy(), theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(passed[1].numpy(), expected @ weight.T + bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(passed[2].numpy(), expected + 1, rtol=1e-4, atol=1e-5)


def test_eval_waits_for_all_that_it_is_given():  # MLX-01
    turnstile = threading.Semaphore(0)

    def wait(x):
        assert turnstile.acquire(timeout=60)
        return x + 1

    class Waits(nn.Graph):
        def build(self, x):
            return sl.host_function(wait, x, out=((2,), sl.float32))

    graph = Waits()
    graph.config.set_outputs_buffer_size(4)
    a, b, c = (graph(sl.full((2,), float(i))) for i in range(3))
    assert not (a.is_ready() or b.is_ready() or c.is_ready())
    turnstile.release(3)
    sl.eval(a, {"b": [b, (c, 7)]}, sl.ones(1), None)
    assert a.is_ready() and b.is_ready() and c.is_ready() and c.tolist() == [3, 3]

    def fail(x):
        raise ValueError("not today")

    failing = nn.Graph.trace(lambda x: sl.host_function(fail, x, out=((2,), sl.float32)))
    with pytest.raises(sl.errors.Error, match="not today"):
        sl.eval(a, failing(sl.ones(2)))


LAYERS = 4


class Pipeline(nn.Graph):
    """Four layers, of which the last has the second device. Inputs come from the host."""

    def __init__(self, balance):
        super().__init__(name="pipeline")
        self.balance = balance
        self.meshes = [sl.placement("sim", [0]), sl.placement("sim", [1])]
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(LAYERS)])
        for layer, stage in zip(self.layers, balance):
            layer.to_global(self.meshes[stage], sl.sbp.broadcast)
            layer.config.set_stage(stage, self.meshes[stage])
        self.add_optimizer(sl.optim.SGD(self.layers.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(2)

    def build(self, x, y):
        for layer in self.layers:
            x = layer(x).tanh()
        loss = ((x - y.to_global(self.meshes[max(self.balance)], sl.sbp.broadcast)) ** 2).mean()
        loss.backward()
        return loss


@pytest.mark.parametrize("balance", [(0, 0, 0, 1), (0, 1, 1, 1)])
def test_layers_lie_on_their_stages_and_inputs_go_only_where_they_are_read(tmp_path, balance):  # LB-14, LB-15
    sl.manual_seed(0)
    graph, one = Pipeline(balance), Pipeline((0,) * LAYERS)
    one.layers.load_state_dict({name: value.to_local() if value.is_global else value for name, value in graph.layers.state_dict().items()})
    x, y = sl.randn(4, 8), sl.randn(4, 8)
    for _ in range(2):
        np.testing.assert_allclose(graph(x, y).numpy(), one(x, y).numpy(), rtol=1e-5)
    graph.save_plan(tmp_path / "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    stream_of = {index: plan["streams"][a["stream"]] for a in plan["actors"] for kind, index in a["program"] if kind == "run"}
    listed = subprocess.run([find_tool("plan-viz"), "devices", tmp_path / "plan.json"], capture_output=True, text=True, check=True).stdout
    for layer, stage in enumerate(balance):
        mine = [i for i, k in enumerate(plan["kernels"]) if k.get("module") == f"layers.{layer}" and k["op"] != "copy"]
        assert mine and {stream_of[i]["device"] for i in mine} == {f"sim:{stage}"}
        for i in mine:
            assert any(line.split()[:1] == [plan["kernels"][i]["name"]] and f"sim:{stage}" in line for line in listed.splitlines())
    inputs = {}
    for i, kernel in enumerate(plan["kernels"]):
        if kernel["op"] == "copy" and stream_of[i]["kind"] == "copy_in":
            inputs.setdefault(kernel["name"].split("/")[0], set()).add(stream_of[i]["device"])
    assert inputs["x"] == {"sim:0"} and inputs["y"] == {"sim:1"}, inputs
