"""Tests what each rung of the way from an eager program to a fast service rests on (the figures are those of benchmarks)."""

import argparse
import os
import pathlib
import platform
import sys
import time
from collections import Counter

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from sluice import nn


class Block(nn.Module):
    def __init__(self, c, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.down = nn.Sequential(nn.Conv2d(c, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return nn.functional.relu(self.bn2(self.conv2(nn.functional.relu(self.bn1(self.conv1(x))))) + self.down(x))


def classifier():
    """A small ResNet, with statistics that are not those of the start."""
    sl.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(16, 24, 1), Block(24, 40, 2),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 10))
    for _ in range(3):
        net(sl.randn(4, 3, 40, 40))
    return net.eval()


class Infer(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        return self.net(x)


def test_results_do_not_depend_on_the_batch():  # LAD-04
    net = classifier()
    images = sl.randn(16, 3, 40, 40)
    rows = {}
    for batch in (1, 2, 16):
        graph = Infer(net)
        rows[batch] = np.concatenate([graph(images[i:i + batch]).numpy() for i in range(0, 16, batch)])
    scale = np.abs(rows[1]).max()
    for batch in (2, 16):
        np.testing.assert_allclose(rows[batch] / scale, rows[1] / scale, rtol=0, atol=1e-6)


def adversarial(net, x, lib):
    """A classifier that looks, moves its input along the gradient, and looks again, as the programs of the case study do."""
    y = net(x)
    loss = lib.nn.functional.cross_entropy(y, y.argmax(1))
    (grad,) = lib.autograd.grad(loss, x)
    return y, grad, net(x).softmax(1)


def test_gradients_of_weights_and_the_second_forward_pass_are_not_computed():  # LAD-03
    net = classifier()

    class Task(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net

        def build(self, x):
            return adversarial(self.net, x, sl)

    graph = Task()
    x = sl.randn(2, 3, 40, 40, requires_grad=True)
    got = graph(x)
    for a, b in zip(got, adversarial(net, x, sl), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-3, atol=1e-5)
    convolutions = sum(isinstance(m, nn.Conv2d) for m in net.modules())
    kernels = Counter(k["op"] for k in graph.plan["kernels"])
    assert kernels["conv"] + kernels["fused_conv"] == kernels["conv_input_grad"] == convolutions
    assert kernels["conv_weight_grad"] == 0
    # Written without a compiler, it is two forward passes and the gradients of inputs and weights: twice the work.
    plain = Task()
    plain.config.set_optimization_level(0)
    plain(x)
    without = Counter(k["op"] for k in plain.plan["kernels"])
    work = ("conv", "fused_conv", "conv_input_grad", "conv_weight_grad")
    assert sum(without[op] for op in work) >= 1.5 * sum(kernels[op] for op in work)


def test_one_core_is_one_core():  # ORT-03
    class Products(nn.Graph):
        def build(self, x):
            for _ in range(8):
                x = (x @ x) * 0.01
            return x

    graph = Products()
    graph.config.set_cores(1)
    x = sl.randn(384, 384)
    graph(x).numpy()
    wall, used = time.perf_counter(), time.process_time()
    for _ in range(12):
        result = graph(x)
    result.numpy()
    wall, used = time.perf_counter() - wall, time.process_time() - used
    assert used <= 1.1 * wall + 0.05, (used, wall)
    assert {stream["cores"] for stream in graph.plan["streams"]} == {1}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_the_threads_of_eager_kernels_end_where_a_long_step_has_some_of_its_own(run_script):  # LAD-02
    """Else all of them sleep between any two kernels, as long as there are more than cores."""
    ran = run_script("""
import os, time
import sluice as sl
sl.set_num_threads(2)
threads = lambda: len(os.listdir("/proc/self/task"))
square = lambda x: (x @ x) * 0.01

class Products(sl.nn.Graph):
    def build(self, x):
        for _ in range(4):
            x = square(x)
        return x

graph, short, x = Products(), Products(), sl.randn(512, 512)
graph.config.set_cores(2)
short.config.set_cores(2)
small = sl.randn(8, 8)
expected = x
for _ in range(4):
    expected = square(expected)
graph(x).sync(), short(small).sync()
for _ in range(3):
    square(x)
    before = threads()
    short(small).sync()
    assert threads() == before, (before, threads())  # not worth it
    made, deadline = graph(x).sync(), time.monotonic() + 20
    while threads() >= before and time.monotonic() < deadline:
        os.sched_yield()  # it has ended, and the system shows it a moment longer
    assert threads() == before - 1, (before, threads())
    assert sl.allclose(made, expected, rtol=1e-4, atol=1e-4)
print("ended")
""", GOMP_SPINCOUNT="1000")  # so that nothing else starts or ends threads
    assert ran.stdout == "ended\n", ran.stderr


def test_a_chain_of_convolutions_is_reordered_at_its_ends_alone():  # MF-13
    torch.manual_seed(0)
    layers = lambda lib: lib.Sequential(*[m for i in range(6) for m in (lib.Conv2d(8 if i else 3, 8, 3, padding=1), lib.ReLU())],  # noqa: E731
                                        lib.MaxPool2d(2), lib.BatchNorm2d(8)).eval()
    ours, theirs = layers(nn), layers(torch.nn)
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    x = torch.randn(2, 3, 12, 12)
    for last, most in ((False, 2), (True, 2)):
        graph = Infer(ours)
        given = to_sl(x)
        if last:
            given = given.contiguous(memory_format=sl.channels_last)
        assert_same(graph(given), theirs(x).detach(), 1e-5)
        moved = [k for k in graph.plan["kernels"] if k["op"] in ("copy", "reorder")]
        assert len(moved) <= most, [k["name"] for k in moved]


@pytest.mark.parametrize("level", [0, 3])
def test_training_has_what_it_needs_all_the_same(level):
    """Only ops that nobody reads are pruned: with an optimizer, weights have gradients."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))
            self.config.set_optimization_level(level)

        def build(self, x):
            loss = (self.net(x) ** 2).mean()
            loss.backward()
            return loss

    graph = Train()
    losses = [float(graph(sl.ones(2, 3, 6, 6))) for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    assert sum(k["op"] == "conv_weight_grad" for k in graph.plan["kernels"]) == 1


def test_a_program_for_torch_runs_with_its_import_changed_and_as_a_graph():  # LAD-01
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks/ladder"))
    import ladder

    theirs, ours = ladder.program("torch"), ladder.program("sluice")
    assert theirs["torch"] is torch and ours["torch"] is sl
    theirs, net, graph = theirs["classifier"](True), ours["classifier"](True), ladder.graph_of(ladder.FUSED, 1, ladder.TINY)[0]
    for module in (net, graph.net):
        module.load_state_dict({name: to_sl(value) for name, value in theirs.state_dict().items()})
    x = torch.randn(1, 3, 32, 32)
    expected = ladder.program("torch")["look"](theirs, x.clone().requires_grad_())
    given = [to_sl(x).requires_grad_() for _ in range(2)]
    for result in (ours["look"](net, given[0]), graph(given[1])):
        for a, b in zip(result, expected, strict=True):
            assert_same(a, b, 1e-4)


def test_the_tables_have_the_factor_of_each_rung_and_of_each_option(monkeypatch):  # LAD-01, LAD-06, LAD-08
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[2] / "benchmarks/ladder"))
    import ladder

    of_image = {"rungs": [240, 230, 140, 84, 56, 50, 34, 33, 30], "options": [50, 34, 40, 49, 48, 55], "backends": [48, 60]}
    monkeypatch.setattr(ladder, "measured", lambda what, ways, options: [(float(ms), 0.01) for _, ms in zip(ways, of_image[what], strict=True)])
    monkeypatch.setattr(ladder, "difference", lambda side, having: 2e-6)
    rungs, options, backends = ladder.climb(None), ladder.ablation(None), ladder.alternatives(argparse.Namespace(side=128))
    factors = [below / here for *_, below, here, _ in rungs]
    assert np.prod(factors[:-1]) == pytest.approx(factors[-1]) == pytest.approx(8) and len(factors) == 9
    assert {name: (below, here) for name, _, below, here, _ in options} == {
        "switch.amp": (50, 34), "switch.search": (50, 40), "switch.fuse_add": (50, 49), "switch.fuse_pad": (50, 48), "switch.packed": (55, 50)}
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for text in ladder.tables(rungs, options, backends, 128)
            for line in text.splitlines() if line.startswith("| ")]
    ladder_of, option_of, backend_of = ({row[0]: row[1:] for row in rows if len(row) == columns} for columns in (7, 5, 6))
    assert backend_of["onednn_graph"] == ["partitions of oneDNN Graph", "48.00", "60.00", "0.80", "2.0e-06"]  # LAD-07
    assert len(ladder_of) == 11 and ladder_of["eager"] == ["PyTorch, eager", "", "240.00", "1", "1", "4.2"]  # images per second
    assert ladder_of["graph"] == ["nn.Graph, nothing left out", "230.00", "140.00", "1.64", "1.71", "7.1"]
    assert ladder_of["search"][-3:] == ["1.10", "8.00", "33.3"] and ladder_of["whole"][-3:] == ["8.00", "", "33.3"]
    assert [row[-1] for row in option_of.values()] == ["factor", "1.47", "1.25", "1.02", "1.04", "1.10"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN's packages are of x86-64")
def test_another_library_in_the_place_of_our_kernels_gives_the_same_results(monkeypatch):  # LAD-07
    for folder in ("gpu", "ladder"):
        monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[2] / "benchmarks" / folder))
    import ladder

    assert [name for name, *_ in ladder.BACKENDS] == ["onednn_graph"]
    for *_, having in ladder.BACKENDS:
        assert ladder.difference(ladder.TINY, having) <= 1e-3
        look, x = ladder.graph_of(batch=2, side=ladder.TINY, **having)
        look(x)
        report = sl.backends.offloaded(look)
        taken = sum(node["flops"] for node in report["nodes"] if node["cluster"] is not None)
        assert report["backend"] == "onednn_graph" and taken >= 0.3 * sum(node["flops"] for node in report["nodes"]), report["line"]
