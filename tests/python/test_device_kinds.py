"""Kinds of devices by name: graphs and bundles on the device of examples/device, a library of its own."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import sluice as sl
from sluice._base.tools import find_tool

BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build/release")).resolve()
EXAMPLE = BUILD / "tests/libsluice_example.so"

# A net that is trained two steps on a device; its losses, and what is left of it.
TRAIN = """
import numpy as np, sluice as sl
def train(device):
    sl.manual_seed(0)
    net = sl.nn.Sequential(sl.nn.Linear(4, 8), sl.nn.ReLU(), sl.nn.Linear(8, 3))
    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__(name="train")
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))
            self.config.set_device(sl.device(device))
        def build(self, x, y):
            loss = sl.nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            return loss
    graph = Train()
    x, y = sl.from_numpy(np.random.default_rng(0).random((5, 4), np.float32)), sl.from_numpy(np.arange(5) % 3)
    losses = [graph(x, y).item() for _ in range(3)]
    return graph, losses, [p.detach().cpu().numpy() for p in net.parameters()]
class Infer(sl.nn.Graph):
    def __init__(self):
        super().__init__(name="infer")
        self.net = sl.nn.Linear(4, 3)
        self.config.set_device(sl.device("example:0"))
    def build(self, x):
        return self.net(x).softmax(-1)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Made on the example device, with the bytes of its output for ones."""
    path = tmp_path_factory.mktemp("example")
    source = TRAIN + f"""
assert sl.backends.load({str(EXAMPLE)!r}) == "example"
sl.manual_seed(0)
graph = Infer()
np.save({str(path / "y.npy")!r}, graph(sl.ones(2, 4)).numpy())
sl.save(graph, {str(path / "bundle")!r})
"""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(sl.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", source], check=True, env=environment, timeout=120)
    return path


def test_a_graph_trains_there_with_the_bits_of_the_cpu(run_script):
    done = run_script(TRAIN + f"""
assert sl.backends.load({str(EXAMPLE)!r}) == sl.backends.load({str(EXAMPLE)!r}) == "example"
graph, losses, weights = train("example:0")
_, expected, others = train("cpu")
assert losses == expected and all(np.array_equal(a, b) for a, b in zip(weights, others)), (losses, expected)
computing = {{s["device"] for s in graph.plan["streams"] if s["kind"] == "compute"}}
assert computing == {{"example:0"}}, computing
there = sl.ones(3).to("example:1")
assert str(there.device) == "example:1" and there.cpu().tolist() == [1, 1, 1] and not there.is_cpu
try:
    there.numpy()
except TypeError as error:
    print(error)
""", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("numpy: the tensor is on example:1; use tensor.cpu().numpy()"), done.stdout


def test_a_library_named_in_the_environment_needs_no_call(run_script):
    done = run_script(TRAIN + """
print(sl.info.as_dict()["devices"]["example:0"])
train("example:0")
""", timeout=120, SLUICE_EXAMPLE_LIBRARY=str(EXAMPLE))
    assert done.returncode == 0 and "memory of its own, asynchronous" in done.stdout, done.stdout + done.stderr


def test_plans_and_tools_keep_the_name(bundle):
    plan = json.loads((bundle / "bundle/plan.json").read_text())
    assert "example:0" in {s["device"] for s in plan["streams"]}
    for words in (["show"], ["dot"], ["verify"]):
        done = subprocess.run([find_tool("plan-viz"), *words, bundle / "bundle/plan.json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert words == ["verify"] or "example:0" in done.stdout


# The plan as it is, and the graph.
RUN = """
import numpy as np, sluice as sl
x = sl.ones(2, 4)
y = sl._C.Engine().load({0!r}).run([x])[0] if {2} else sl.load_graph({0!r}, device="example:0")(x)
np.testing.assert_array_equal(y.numpy(), np.load({1!r}))
"""


@pytest.mark.parametrize("plan", [True, False])
def test_a_bundle_names_the_library_that_it_misses(plan, bundle, run_script):
    source = RUN.format(str(bundle / "bundle"), str(bundle / "y.npy"), plan)
    done = run_script(source)
    assert done.returncode != 0
    assert "the backend of example could not be loaded: libsluice_example.so: cannot open shared object file" in done.stderr
    assert "named in SLUICE_EXAMPLE_LIBRARY, or loaded by its path (Engine::load_backend, sluice.backends.load)" in done.stderr
    done = run_script(source, SLUICE_EXAMPLE_LIBRARY=str(EXAMPLE))
    assert done.returncode == 0, done.stderr


def test_unknown_kinds_are_named_with_those_there_are():
    assert str(sl.device("npu", 1)) == "npu:1"  # a name; whether there is one is asked when it is used
    with pytest.raises(NotImplementedError, match=r"^device: npu:1: the backend of npu could not be loaded: .*; the kinds here are cpu, sim"):
        sl.ones(3).to("npu:1")
    with pytest.raises(NotImplementedError, match="the backend '/nowhere.so' could not be loaded"):
        sl.backends.load("/nowhere.so")
    with pytest.raises(ValueError, match="^device: bad kind: 'N-P'; must be a name"):
        sl.device("N-P")


@pytest.mark.parametrize("text", ["", "cpu:99999999999999", "cpu:-1", "a b", "no_such_kind_here", "\ud800"])
@pytest.mark.parametrize("call", [
    lambda d: sl.empty(2, device=d), lambda d: sl.rand(2, device=d), lambda d: sl.randperm(3, device=d),
    lambda d: sl.Generator(device=d), lambda d: sl.set_default_device(d), lambda d: sl.nn.Linear(2, 2, device=d),
    lambda d: sl.ones(2).to(d), lambda d: sl.tensor([1.0], device=d)])
def test_texts_that_are_no_device_are_refused_wherever_they_are_given(call, text):
    with pytest.raises(ValueError, match="device: bad|text: "):
        call(text)
