"""Ops from a shared library (examples/custom_op): eager, differentiated, in graphs, in bundles."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch

import sluice as sl

LIBRARY = pathlib.Path(os.environ.get("SLUICE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build/release")) / "tests"
EXAMPLE = LIBRARY / "example_ops.so"


@pytest.fixture(autouse=True)
def loaded():
    assert sl.ops.load_library(EXAMPLE) == ["scaled_softsign", "squared_distance"]


def softsign(x, slope):
    return slope * x / (1 + x.abs())


def test_the_module_exports_its_door_alone():
    """Other symbols of the standard library that it contains would serve PyTorch, too, where it is loaded later."""
    done = subprocess.run(["nm", "-D", "--defined-only", sl._C.__file__], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["PyInit__C"]


def test_an_op_is_a_function_like_the_others():
    op = sl.ops.scaled_softsign
    assert op.signature == "(x: Tensor, slope: float = 1.0)"
    assert "slope * x / (1 + |x|)" in op.__doc__ and op.differentiable
    assert "scaled_softsign" in sl.ops.__all__
    assert sl.ops.scaled_softsign(sl.tensor([-1.0, 0.0, 3.0]), slope=2.0).tolist() == [-1, 0, 1.5]
    assert sl.ops.squared_distance(sl.tensor([3.0]), sl.tensor([1.0])).tolist() == [4]


def test_its_errors_are_those_of_the_others():
    with pytest.raises(TypeError, match="^scaled_softsign: x has another element type; it must be float32 or float64"):
        sl.ops.scaled_softsign(sl.tensor([1, 2]))
    with pytest.raises(TypeError, match="^scaled_softsign: parameter 'slope': wrong type: \"steep\""):
        sl.ops.scaled_softsign(sl.tensor([1.0]), slope="steep")
    with pytest.raises(ValueError, match="^squared_distance: a and b differ"):
        sl.ops.squared_distance(sl.ones(2), sl.ones(3))


def test_gradients_of_first_and_second_order(same):
    x = torch.linspace(-2, 2, 7, dtype=torch.float64, requires_grad=True)
    ours = sl.tensor(x.detach().numpy(), requires_grad=True)
    first, = torch.autograd.grad(softsign(x, 0.5).pow(2).sum(), x, create_graph=True)
    second, = torch.autograd.grad(first.sum(), x)
    our_first, = sl.autograd.grad(sl.ops.squared_distance(sl.ops.scaled_softsign(ours, 0.5), sl.zeros(7, dtype=sl.float64)).sum(),
                                  [ours], create_graph=True)
    our_second, = sl.autograd.grad(our_first.sum(), [ours])
    same(our_first, first, 1e-12)
    same(our_second, second, 1e-12)


class Net(sl.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = sl.nn.Linear(4, 3)

    def forward(self, x):
        return sl.ops.scaled_softsign(self.layer(x), slope=2.0)


class Train(sl.nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))

    def build(self, x, y):
        loss = sl.ops.squared_distance(self.net(x), y).mean()
        loss.backward()
        return loss


def test_a_graph_trains_through_them_as_eager_does():
    eager, traced = Net(), Net()
    traced.load_state_dict(eager.state_dict())
    train = Train(traced)
    optimizer = sl.optim.SGD(eager.parameters(), lr=0.1)
    x, y = sl.randn(5, 4), sl.randn(5, 3)
    for _ in range(4):
        optimizer.zero_grad()
        loss = sl.ops.squared_distance(eager(x), y).mean()
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(train(x, y).item(), loss.item(), rtol=1e-5)
    np.testing.assert_allclose(traced.layer.weight.detach().numpy(), eager.layer.weight.detach().numpy(), rtol=1e-4)


class Predict(sl.nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        return self.net(x)


LOAD = """
import sluice as sl
bundle, library = {bundle!r}, {library!r}
for load in (lambda: sl.load_graph(bundle), lambda: sl._C.Engine(cores=1).load(bundle)):
    try:
        load()
    except Exception as error:
        print(type(error).__name__, error)
engine = sl._C.Engine(cores=1)
engine.load_library(library)
x = sl.ones(5, 4)
print(engine.load(bundle).run([x])[0].tolist())
sl.ops.load_library(library)
print(sl.load_graph(bundle)(x).tolist())
"""


def test_a_bundle_says_which_extension_it_needs(tmp_path, run_script):
    graph = Predict(Net())
    expected = graph(sl.ones(5, 4)).tolist()
    sl.save(graph, tmp_path / "bundle")
    assert sl.load_graph(tmp_path / "bundle")(sl.ones(5, 4)).tolist() == expected
    done = run_script(LOAD.format(bundle=str(tmp_path / "bundle"), library=str(EXAMPLE)))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    for line in lines[:2]:
        assert "op 'scaled_softsign' is of extension 'example_ops 1.0', which is not loaded; load its library first" in line
    assert lines[2:] == [str(expected)] * 2


def test_wrong_libraries_are_refused():
    with pytest.raises(OSError, match="^extension '/none.so': cannot be loaded"):
        sl.ops.load_library("/none.so")
    before = list(sl.ops.__all__)
    for fault, message in [(1, "has no function 'sluice_extension_abi'"), (2, "made for extension interface '0-elsewhere'"),
                           (3, "op 'relu': its name is that of a built-in op"), (4, "no licence")]:
        with pytest.raises(Exception, match=message):
            sl.ops.load_library(LIBRARY / f"faulty_ops_{fault}.so")
    assert sl.ops.__all__ == before
