"""The foreign backend that hands clusters to ONNX Runtime as models of ONNX."""

import os
import pathlib
import subprocess
import sys

import pytest
from onnx_models import INSTALLED, needs_onnx

import sluice as sl
from sluice import nn

pytestmark = needs_onnx
if INSTALLED:
    import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.GELU())
        self.norm, self.last = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x):
        return self.last(self.norm(self.features(x).mean((2, 3)))).softmax(-1)


class Graph(nn.Graph):
    def __init__(self, net, mode=False, **options):
        super().__init__()
        self.net = net
        if mode:
            self.config.enable_onnxruntime(**options)

    def build(self, x):
        return self.net(x)


@pytest.fixture
def net():
    sl.manual_seed(0)
    net = Net()
    net(sl.randn(4, 3, 8, 8))  # running statistics that are not trivial
    return net.eval()


def test_a_net_runs_in_onnx_runtime(net, tmp_path, capfd):
    x = sl.randn(2, 3, 8, 8)
    graph = Graph(net, True)
    with sl.no_grad():
        wanted = net(x)
        for _ in range(2):
            assert sl.allclose(graph(x), wanted, rtol=1e-4, atol=1e-5)
    report = sl.backends.offloaded(graph)
    assert report["backend"] == "onnxruntime" and report["clusters"] == 1
    assert all(node["cluster"] == 0 for node in report["nodes"]), report["line"]
    assert f"onnxruntime: {len(report['nodes'])} of {len(report['nodes'])} nodes, 100 % of flops, 1 cluster" in capfd.readouterr().err
    assert [k["op"] for k in graph.plan["kernels"]].count("foreign") == 1
    # Weights are the cluster's inputs, so a change of them is seen.
    with sl.no_grad():
        net.last.weight.mul_(2)
        assert sl.allclose(graph(x), net(x), rtol=1e-4, atol=1e-5)


def test_one_bundle_with_and_without(net, tmp_path):
    x = sl.randn(2, 3, 8, 8)
    plain = Graph(net)
    with sl.no_grad():
        wanted = plain(x)
    sl.save(plain, tmp_path / "net")
    Graph(net, True)  # which finds the library of Python's package
    there = sl.load_graph(tmp_path / "net", backend="onnxruntime", backend_options=["optimization=1"])
    assert sl.backends.offloaded(there)["clusters"] == 1
    assert sl.allclose(there(x), wanted, rtol=1e-4, atol=1e-5)
    assert sl.equal(sl.load_graph(tmp_path / "net")(x), wanted)


def test_what_has_no_form_or_no_kernel_is_named(capfd):
    class Special(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.enable_onnxruntime()

        def build(self, x):
            return sl.special.bessel_j0(x.relu()).relu() + sl.linalg.inv(x)

    graph, x = Special(), sl.eye(3) * 2
    assert sl.allclose(graph(x), sl.special.bessel_j0(x.relu()).relu() + sl.linalg.inv(x))
    reasons = {n["op"]: n["reason"] for n in sl.backends.offloaded(graph)["nodes"] if n["reason"]}
    assert reasons["bessel_j0"].startswith("no form in ONNX: ") and "bessel_j0" in reasons["bessel_j0"]


def test_training_steps_have_clusters(net):
    class Train(nn.Graph):
        def __init__(self, mode):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))
            if mode:
                self.config.enable_onnxruntime()

        def build(self, x):
            loss = self.net(x).square().sum()
            loss.backward()
            return loss

    start, x, losses = {k: v.clone() for k, v in net.state_dict().items()}, sl.randn(2, 3, 8, 8), []
    for mode in (False, True):
        net.load_state_dict(start)
        step = Train(mode)
        losses.append([step(x).item() for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    taken = [n for n in sl.backends.offloaded(step)["nodes"] if n["cluster"] is not None]
    assert len(taken) > 10


def test_wrong_options_leave_the_cluster_to_sluice(net, capfd):
    x = sl.randn(2, 3, 8, 8)
    for options, text in (({"optimization": 7}, "optimization must be 0, 1, 2 or 99: 7"), ({"precision": "int4"}, "precision=int4")):
        with sl.no_grad():
            assert sl.allclose(Graph(net, True, **options)(x), net(x), rtol=1e-4, atol=1e-5)
        told = capfd.readouterr().err
        assert "is not compiled: " in told and text in told


def test_a_library_that_is_not_there_is_the_reason():
    code = """
import sluice as sl
class Graph(sl.nn.Graph):
    def build(self, x):
        return x.relu()
graph = Graph()
graph.config.enable_onnxruntime()
print(graph(sl.tensor([-1.0, 2.0])).tolist(), sl.backends.offloaded(graph)["line"])
"""
    for library, text in (("/no/such/libonnxruntime.so", "/no/such/libonnxruntime.so cannot be loaded; install ONNX Runtime"),
                          ("libm.so.6", "libm.so.6: no function OrtGetApiBase(); it is no ONNX Runtime")):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "SLUICE_ONNXRUNTIME_LIBRARY": library})
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("[0.0, 2.0] onnxruntime: 0 of 1 nodes") and text in done.stdout


def test_it_is_a_library_like_any_other():
    """It links neither Sluice nor ONNX Runtime, and exports one function."""
    library = BUILD / "libsluice_onnxruntime.so"
    symbols = subprocess.run(["nm", "-D", "--defined-only", "--extern-only", library], capture_output=True, text=True, check=True).stdout
    assert "sluice_offload" in [line.split()[-1] for line in symbols.splitlines()]
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "libsluice" not in needed.replace("libsluice_onnxruntime", "") and "libonnxruntime" not in needed.replace("libsluice_onnxruntime", "")
    assert onnxruntime.__version__
