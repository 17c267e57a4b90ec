"""The foreign backends of the tree, by the libraries that tools/setup.sh keeps beside the environment: nets of torchvision in
inference through each, weights that change, threads, and what is not taken."""

import os
import pathlib
import platform
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from onnx_models import INSTALLED  # puts ONNX Runtime on the path
from test_torchvision import MODELS
from torchvision_beside import both, needs_torchvision

import sluice as sl
from sluice import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))
X86 = platform.machine() == "x86_64"
ADAPTERS = ["onnxruntime", "openvino", "onednn_graph"]
NETS = ["alexnet", "resnet50", "mobilenet_v3_small", "shufflenet_v2_x0_5", "convnext_tiny"]
# oneDNN's graphs have no ops for these, or for Sluice's form of them: windows of attention, slices.
LEAST = {"onnxruntime": 0.99, "openvino": 0.9, "onednn_graph": 0.9}


def there(name):
    """oneDNN's packages are of x86-64 alone, and models of ONNX need a build with protobuf."""
    return X86 if name == "onednn_graph" else INSTALLED


each = pytest.mark.parametrize("adapter", [pytest.param(a, marks=pytest.mark.skipif(not there(a), reason="not on this machine"))
                                           for a in ADAPTERS])


class Graph(nn.Graph):
    def __init__(self, net, adapter=None, **options):
        super().__init__()
        self.net = net
        if adapter is not None:
            getattr(self.config, f"enable_{adapter}")(**options)

    def build(self, x):
        return self.net(x)


def small():
    sl.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1, groups=2),
                        nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 5), nn.Softmax(-1))
    with sl.no_grad():
        net(sl.randn(4, 3, 8, 8))  # running statistics that are not those of the start
    return net.eval()


@pytest.fixture
def net():
    return small()


@pytest.fixture
def x():
    return sl.randn(2, 3, 8, 8, generator=sl.Generator().manual_seed(1))


def share_of_flops(report):
    work = sum(node["flops"] for node in report["nodes"])
    return sum(node["flops"] for node in report["nodes"] if node["cluster"] is not None) / work


@pytest.mark.skipif(not X86, reason="the packages are of x86-64")
def test_adapters_are_built_for_what_is_beside_the_environment():
    for name in ADAPTERS:
        assert (BUILD / f"libsluice_{name}.so").is_file(), f"{name}: cmake has not found what tools/setup.sh has put into .venv"


@each
def test_a_net_runs_whole_and_says_so_once(adapter, net, x, capfd):
    graph = Graph(net, adapter)
    with sl.no_grad():
        for _ in range(3):
            assert sl.allclose(graph(x), net(x), rtol=1e-4, atol=1e-5)
    report = sl.backends.offloaded(graph)
    left = [node["op"] for node in report["nodes"] if node["cluster"] is None]
    assert report["backend"] == adapter and share_of_flops(report) > 0.99, report["line"]
    assert (report["clusters"], left) == ((2, ["reshape"]) if adapter == "onednn_graph" else (1, [])), report["line"]
    told = capfd.readouterr().err
    assert told.count(f"{adapter}: ") == 1 and report["line"] in told
    assert [k["op"] for k in graph.plan["kernels"]].count("foreign") == report["clusters"]


@each
def test_weights_that_change_are_seen(adapter, net, x):
    """They are constants of what is compiled, which is compiled anew when they have changed: by ops, by a state that is loaded, by NumPy."""
    graph, start = Graph(net, adapter), {k: v.clone() for k, v in net.state_dict().items()}
    with sl.no_grad():
        first = graph(x)
        net[0].weight.mul_(0.5)
        net[1].running_var.add_(1)
        assert sl.allclose(graph(x), net(x), rtol=1e-4, atol=1e-5) and not sl.allclose(graph(x), first, atol=1e-4)
        net.load_state_dict(start)
        assert sl.equal(graph(x), first)
        bias = net[9].bias.detach().numpy()
        for value in (1.0, -1.0, 1.0):
            bias[0] = value
            assert sl.allclose(graph(x), net(x), rtol=1e-4, atol=1e-5)
        assert sl.equal(graph(x), graph(x))


@each
def test_equal_nets_with_other_weights_do_not_meet(adapter, net, x):
    nets = [net, *(small() for _ in range(2))]
    with sl.no_grad():
        for i, one in enumerate(nets):
            one[9].weight.add_(0.1 * i * sl.arange(40.0).reshape(5, 8).sin())
        graphs = [Graph(one, adapter) for one in nets]
        for _ in range(2):
            results = [graph(x) for graph in graphs]
            for one, result in zip(nets, results, strict=True):
                assert sl.allclose(result, one(x), rtol=1e-4, atol=1e-5)
    assert not sl.allclose(results[0], results[1], atol=1e-4)


COMPILES = """
import sys
sys.path.insert(0, {tests!r})
import sluice as sl
from test_foreign_adapters import Graph, small
net, x = small(), sl.ones(2, 3, 8, 8)
graph = Graph(net, {adapter!r})
with sl.no_grad():
    for turn in range(3):
        graph(x).numpy()
    print("changed", file=sys.stderr, flush=True)
    net[0].weight.mul_(2)
    for turn in range(3):
        graph(x).numpy()
"""


@each
def test_a_cluster_is_compiled_once_for_the_same_weights(adapter):
    done = subprocess.run([sys.executable, "-c", COMPILES.format(tests=str(ROOT / "tests/python"), adapter=adapter)], capture_output=True,
                          text=True, env={**os.environ, "SLUICE_LOG": "plan=trace"})
    assert done.returncode == 0, done.stderr
    before, after = done.stderr.split("changed\n")
    clusters = 2 if adapter == "onednn_graph" else 1
    counted = [(text.count("calls compile"), len(re.findall("calls run$", text, re.M))) for text in (before, after)]
    assert counted[0] == (clusters, 3 * clusters) and counted[1] == (1, 3 * clusters)  # the other one's weights are as they were


@each
def test_threads_call_at_the_same_time(adapter, net, x):
    graph, wrong = Graph(net, adapter), []
    inputs = [x + i for i in range(4)]
    with sl.no_grad():
        wanted = [net(x) for x in inputs]
        graph(x)

    def call(i):
        with sl.no_grad():
            for _ in range(10):
                if not sl.allclose(graph(inputs[i]), wanted[i], rtol=1e-4, atol=1e-5):
                    wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@each
def test_a_failed_compilation_falls_back_and_says_so(adapter, net, x, capfd):
    graph = Graph(net, adapter, precision="int4")
    with sl.no_grad():
        for _ in range(2):
            assert sl.allclose(graph(x), net(x), rtol=1e-4, atol=1e-5)
    told = capfd.readouterr().err
    clusters = sl.backends.offloaded(graph)["clusters"]  # each says so once
    assert told.count("is not compiled: unknown option (known are ") == clusters >= 1 and "precision=int4; Sluice computes it" in told


@each
def test_training_steps_have_clusters(adapter, net, x):
    class Train(nn.Graph):
        def __init__(self, mode):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))
            if mode:
                getattr(self.config, f"enable_{adapter}")()

        def build(self, x):
            loss = self.net(x).square().sum()
            loss.backward()
            return loss

    start, losses = {k: v.clone() for k, v in net.state_dict().items()}, []
    for mode in (False, True):
        net.load_state_dict(start)
        step = Train(mode)
        losses.append([step(x).item() for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3) and losses[0][0] != losses[0][2]
    assert sl.backends.offloaded(step)["clusters"] >= 1


@each
def test_a_library_that_is_not_there_is_the_reason(adapter):
    code = f"""
import sluice as sl
class Graph(sl.nn.Graph):
    def build(self, x):
        return x.relu()
graph = Graph()
graph.config.enable_{adapter}()
print(graph(sl.tensor([-1.0, 2.0])).tolist(), sl.backends.offloaded(graph)["line"])
"""
    variable = {"onnxruntime": "SLUICE_ONNXRUNTIME_LIBRARY", "openvino": "SLUICE_OPENVINO_LIBRARY", "onednn_graph": "SLUICE_ONEDNN_LIBRARY"}[adapter]
    for library, text in (("/no/such/library.so", "/no/such/library.so cannot be loaded; install "), ("libm.so.6", "libm.so.6: no function ")):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, variable: library})
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"[0.0, 2.0] {adapter}: 0 of 1 nodes") and text in done.stdout


def check_net(models, adapter, name, size=64):
    torch.manual_seed(0)
    options = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    theirs = models[1].get_model(name, num_classes=40, **options).eval()
    for module in theirs.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # as if trained
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    for parameter in theirs.parameters():
        if not parameter.any():  # heads that begin with zeros would give nothing else
            parameter.data.normal_(std=0.02)
    ours = models[0].get_model(name, num_classes=40, **options).eval()
    ours.load_state_dict(theirs.state_dict())
    graph, x = Graph(ours, adapter), torch.rand(2, 3, size, size)
    with torch.no_grad(), sl.no_grad():
        expected, got = theirs(x).numpy(), graph(sl.tensor(x.numpy())).numpy()
    difference = np.abs(got - expected).max() / np.abs(expected).max()
    report = sl.backends.offloaded(graph)
    print(f"count: {adapter}: {name}: {difference:.1e}; {report['line']}")
    assert got.shape == expected.shape == (2, 40) and difference <= 1e-4
    return report


@pytest.fixture(scope="module")
def models():
    with both("models") as modules:
        yield modules


@needs_torchvision
@each
@pytest.mark.parametrize("name", NETS)
def test_nets_of_torchvision_are_right(models, adapter, name):
    assert share_of_flops(check_net(models, adapter, name)) >= LEAST[adapter]


@needs_torchvision
@pytest.mark.soak
@each
@pytest.mark.parametrize("name", MODELS if os.environ.get("SLUICE_LONG", "0") not in ("", "0") else MODELS[::6])
def test_every_net_of_torchvision_is_right(models, adapter, name):
    check_net(models, adapter, name, 224 if name in ("inception_v3", "maxvit_t", "vit_b_16") else 96)


@pytest.mark.skipif(not X86, reason="oneDNN's packages are of x86-64")
def test_partitions_of_onednn_run_without_python(net, x, tmp_path):
    """It needs no model of ONNX, so every program takes it."""
    graph = Graph(net)
    graph(x)
    sl.save(graph, tmp_path / "plain")

    def tool(name, *arguments):
        return subprocess.run([BUILD / "tools" / name, *arguments], capture_output=True, text=True)

    made = tool("sluice-compile", tmp_path / "plain", "--backend", "onednn_graph", "--to", "bundle", "-o", tmp_path / "clustered")
    assert made.returncode == 0 and "onednn_graph: 10 of 11 nodes" in made.stderr, made.stderr
    shown = tool("plan-viz", "partition", tmp_path / "plain", "--backend", "onednn_graph")
    line = "onednn_graph: 10 of 11 nodes, 100 % of flops, 2 clusters; not taken: reshape (oneDNN: not supported)"
    assert shown.returncode == 0 and shown.stdout.startswith(f"{line}\n"), shown.stderr
    file = tmp_path / "y.npy"
    assert tool("sluice-run", tmp_path / "plain", "--fill=random", f"--output=@{file}").returncode == 0
    done = tool("sluice-run", tmp_path / "clustered", "--fill=random", f"--expect=@{file}", "--tolerance=1e-4", "--backend=onednn_graph")
    assert done.returncode == 0 and "not loaded" not in done.stderr, done.stderr


@pytest.mark.skipif(not X86, reason="oneDNN's packages are of x86-64")
def test_what_graphs_of_onednn_have_not_is_named(x):
    class Special(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.enable_onednn_graph()

        def build(self, x):
            values, indices = nn.functional.max_pool2d(x, 2, return_indices=True)
            return sl.special.erfinv(values.tanh()) + indices, x.double().relu()

    graph = Special()
    graph(x)
    reasons = {node["op"]: node["reason"] for node in sl.backends.offloaded(graph)["nodes"] if node["cluster"] is None}
    assert reasons["max_pool"] == "only float32" and reasons["erfinv"] == "no such op in oneDNN's graphs"
    assert reasons["relu"] == "only float32"


@pytest.mark.parametrize("adapter", [a for a in ("openvino", "onednn_graph") if there(a)])
def test_lower_precision_is_an_option(adapter, net, x):
    graph = Graph(net, adapter, precision="bf16")
    with sl.no_grad():
        assert sl.allclose(graph(x), net(x), rtol=5e-2, atol=5e-2)
