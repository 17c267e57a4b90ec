"""Tests that a training plan has in it a backward pass and updates made when it is compiled, and of both only what is trained."""

import shutil
import subprocess

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool

WIDTH, LAYERS, BATCH = 32, 5, 256


def make(lib):
    layers = []
    for _ in range(LAYERS):
        layers += [lib.Linear(WIDTH, WIDTH), lib.Tanh()]
    return lib.Sequential(*layers)


class Train(nn.Graph):
    def __init__(self, net):
        super().__init__(name="train")
        self.net = net
        self.add_optimizer(sl.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.05, momentum=0.9))
        self.config.disable_pass("fuse_elementwise")  # kernels are counted here

    def build(self, images):
        y = self.net(images)
        loss = ((y - images) ** 2).mean()
        loss.backward()
        return y, loss


def trained(name):
    """Which parameters each way trains; linear layers have even numbers."""
    return {"everything": lambda layer, kind: True, "biases": lambda layer, kind: kind == "bias",
            "the last two layers": lambda layer, kind: layer >= 2 * (LAYERS - 2),
            "some": lambda layer, kind: (layer, kind) in ((2, "weight"), (6, "bias"))}[name]


def both(way, steps=3):
    """Sluice's graph and torch's module after as many steps, with the same losses."""
    torch.manual_seed(4)
    theirs = make(torch.nn)
    ours = make(nn)
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    for net in (ours, theirs):
        for name, p in net.named_parameters():
            layer, kind = name.split(".")
            p.requires_grad_(trained(way)(int(layer), kind))
    graph = Train(ours)
    optimizer = torch.optim.SGD([p for p in theirs.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
    x = torch.randn(BATCH, WIDTH)
    for _ in range(steps):
        _, loss = graph(to_sl(x))
        optimizer.zero_grad()
        expected = ((theirs(x) - x) ** 2).mean()
        expected.backward()
        optimizer.step()
        assert_same(loss, expected.detach(), 1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same(a, b.detach(), 1e-5)
    return graph


def backward(graph):
    """The parts of the backward pass: modules of weights' gradients, of biases', of inputs' (of activations), and updates."""
    found = {"weight": [], "bias": [], "input": [], "update": 0}
    for k in graph.plan["kernels"]:
        if k.get("role") == "update":
            found["update"] += 1
        elif k.get("role") == "backward" and k["module"]:
            shape = k["outputs"][0]["shape"]
            kind = {"matmul": "weight" if shape == [WIDTH, WIDTH] else "input", "sum": "bias", "tanh_backward": "input"}[k["op"]]
            if (layer := int(k["module"].rpartition(".")[2])) not in found[kind]:
                found[kind].append(layer)
    return {kind: sorted(layers) if kind != "update" else layers for kind, layers in found.items()}


LINEAR = list(range(0, 2 * LAYERS, 2))


def test_biases_alone():  # TTE-03, TTE-10
    everything, biases = both("everything"), both("biases")
    found = backward(biases)
    assert backward(everything)["weight"] == backward(everything)["bias"] == LINEAR
    assert found["weight"] == [] and found["bias"] == LINEAR and found["update"] == LAYERS
    assert 0 not in found["input"]  # nor that of the first layer's input
    a, b = everything.memory(), biases.memory()
    weights = LAYERS * WIDTH * WIDTH * 4
    assert a["variables"] - b["variables"] == weights  # their momentum
    assert a["total"] - b["total"] >= weights


def test_the_last_layers_alone():  # TTE-04
    everything, last = both("everything"), both("the last two layers")
    found = backward(last)
    first = LINEAR[-2]
    assert found["weight"] == found["bias"] == LINEAR[-2:] and found["update"] == 4
    assert all(layer > first for layer in found["input"])  # the pass stops there
    kept = everything.memory()["temp"] - last.memory()["temp"]
    assert kept >= (LAYERS - 3) * BATCH * WIDTH * 4, kept  # activations of the layers before, which nobody reads again


def test_some_parameters_alone():  # TTE-05
    found = backward(both("some"))
    assert found["weight"] == [2] and found["bias"] == [6] and found["update"] == 2
    assert min(found["input"]) == 3  # no further than what is trained


def test_the_plan_has_all_of_a_step_and_a_program_without_autograd_runs_it(tmp_path):  # TTE-01, TTE-02
    sl.manual_seed(0)
    graph = Train(make(nn))
    images = np.random.default_rng(0).normal(size=(6, BATCH, WIDTH)).astype(np.float32)
    graph.compile(sl.from_numpy(images[0]))
    roles = [k.get("role", "forward") for k in graph.plan["kernels"]]
    assert {"forward", "backward", "update"} <= set(roles)
    sl.save(graph, tmp_path / "bundle")
    expected = [graph(sl.from_numpy(x))[0].numpy() for x in images]
    assert not np.array_equal(expected[0], graph(sl.from_numpy(images[0]))[0].numpy())  # it learns from step to step
    images.tofile(tmp_path / "images.f32")
    runner = find_tool("cpp_runner")
    subprocess.run([runner, tmp_path / "bundle", tmp_path / "images.f32", tmp_path / "out.f32", "1"], check=True, capture_output=True)
    assert np.fromfile(tmp_path / "out.f32", np.float32).tobytes() == np.stack(expected).tobytes()

    linked = subprocess.run(["ldd", runner], capture_output=True, text=True, check=True).stdout.split()
    libraries = [word for word in linked if "libsluice" in word and word.startswith("/")]
    assert any("libsluice_runtime" in library for library in libraries) and "libpython" not in " ".join(linked)
    if shutil.which("nm") is None:
        pytest.skip("no nm, which lists symbols")
    for binary in (runner, *libraries):
        symbols = subprocess.run(["nm", "-C", "--defined-only", binary], capture_output=True, text=True).stdout
        assert "sluice::GradNode" not in symbols and "sluice::compile(" not in symbols, binary
