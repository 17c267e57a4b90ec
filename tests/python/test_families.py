"""Graphs with several plans: dims with padding, splitting or exact plans; shared memory."""

import pathlib

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from affine import Affine, rows


class Scale(nn.Graph):
    """Computes exactly, whatever the shape."""

    def __init__(self, dims=None, **kwargs):
        super().__init__(**kwargs)
        if dims:
            self.config.set_dims(dims)

    def build(self, x):
        return {"twice": x * 2, "both": (x.transpose(0, 1) + 1, x - 1)}


EVERY_SIZE = """
import sys
sys.path.insert(0, {examples!r})
import numpy as np
import sluice as sl
from sluice import nn
from digits_net import DigitsNet


class Classify(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net.eval()

    def build(self, images):
        return self.net(images)


sl.manual_seed(0)
net = DigitsNet()
family = Classify(net)
family.config.set_dims({{"images": {{0: sl.Dim("batch", max=32)}}}})
images = sl.from_numpy(np.random.default_rng(0).standard_normal((32, 1, 8, 8), np.float32))
results = [family(images[:n]) for n in range(1, 33)]
assert [m["batch"] for m in family.members] == [1, 2, 4, 8, 16, 32]
for n, result in enumerate(results, 1):
    alone = Classify(net)
    np.testing.assert_array_equal(result.numpy(), alone(images[:n]).numpy(), err_msg=str(n))
    alone.close()
"""


@pytest.mark.parametrize("instructions", ["ALL", "AVX2"])
def test_every_size_gives_what_its_own_plan_gives(run_script, instructions):
    """The digits net, batch 1 to 32; also with the kernels that oneDNN has for CPUs without AVX-512."""
    examples = str(pathlib.Path(__file__).parents[2] / "examples")
    child = run_script(EVERY_SIZE.format(examples=examples), timeout=300, DNNL_MAX_CPU_ISA=instructions)
    assert child.returncode == 0, child.stderr


def test_calls_run_the_smallest_plan_that_fits():
    graph = Affine({"x": {0: sl.Dim("batch", max=8, buckets=(2, 8))}})
    graph.compile(rows(5))
    assert graph.traced == [(2, 6), (8, 6)]
    assert graph.members == [{"batch": 2}, {"batch": 8}]
    assert graph.inputs == [("x", sl.float32, (8, 6))]
    alone = Affine(model=graph.model)
    for n, plan in [(1, 0), (2, 0), (3, 1), (8, 1)]:
        result = graph(rows(n))
        assert result.shape == (n, 3)
        assert graph.plan["inputs"][0]["shape"][0] == [2, 8][plan]
    assert np.allclose(graph(rows(3)).numpy(), alone(rows(3)).numpy(), atol=1e-6)
    assert len(graph.traced) == 2


@pytest.mark.parametrize("fit", ["pad", "split"])
def test_results_are_cut_and_joined_where_the_dims_are(fit):
    dims = sl.Dim("rows", max=7, buckets=(1, 3, 7), fit=fit), sl.Dim("columns", max=5, buckets=(2, 5))
    graph = Scale({"x": {0: dims[0], -1: dims[1]}})
    for n in range(1, 8):
        for width in range(1, 6):
            x = rows(n, width)
            result = graph(x)
            assert np.array_equal(result["twice"].numpy(), x.numpy() * 2)
            assert np.array_equal(result["both"][0].numpy(), x.numpy().T + 1)
            assert np.array_equal(result["both"][1].numpy(), x.numpy() - 1)
    assert len(graph.members) == 6


def test_an_exact_dim_refuses_other_sizes():
    graph = Scale({"x": {0: sl.Dim("n", max=4, fit="exact", buckets=(2, 4))}})
    assert np.array_equal(graph(rows(2))["twice"].numpy(), rows(2).numpy() * 2)
    with pytest.raises(ValueError, match=r"dim 'n' is 3; there are plans for 2, 4, and its fit is exact"):
        graph(rows(3))


def test_errors_name_the_argument_and_the_dim():
    batch = sl.Dim("batch", max=32, min=2)
    graph = Affine({"x": {0: batch}}, name="g")
    with pytest.raises(ValueError, match=r"^graph 'g': argument 'x': axis 0 is 33; dim 'batch' is at most 32"):
        graph(rows(33))
    assert graph.traced == []  # nothing was compiled for it
    graph(rows(4))
    with pytest.raises(ValueError, match=r"^graph 'g': argument 'x': axis 0 is 1; dim 'batch' is at least 2"):
        graph(rows(1))
    with pytest.raises(ValueError, match=r"^graph 'g': argument 'x': axis 1 is 7; expected 6"):
        graph(rows(4, 7))
    with pytest.raises(TypeError, match="argument 'x' has dtype"):
        graph(sl.zeros(4, 6, dtype=sl.int64))
    with pytest.raises(ValueError, match=r"set_dims names 'y'; its arguments are \['x'\]"):
        Affine({"y": {0: batch}})(rows(4))
    with pytest.raises(IndexError, match=r"set_dims binds axis 2 of 'x', which has shape"):
        Affine({"x": {2: batch}})(rows(4))
    with pytest.raises(TypeError, match="must be a dict of sluice.Dim by axis"):
        Affine({"x": {0: 4}})
    for wrong, what in [({"max": 0}, "0"), ({"max": 4, "buckets": (2,)}, r"buckets \[2\]"), ({"max": 4, "fit": "loose"}, "loose"),
                        ({"max": 4, "buckets": (3, 2, 4)}, "ascend")]:
        with pytest.raises(ValueError, match=what):
            sl.Dim("n", **wrong)


class Mean(nn.Graph):
    def build(self, x):
        return {"rows": x * 2, "mean": x.mean()}


def test_what_padding_would_spoil_is_refused():
    graph = Mean()
    graph.config.set_dims({"x": {0: sl.Dim("batch", max=4)}})
    with pytest.raises(ValueError, match="output 'mean' has no axis of a dim that is padded"):
        graph(rows(3))
    exact = Mean()
    exact.config.set_dims({"x": {0: sl.Dim("batch", max=4, fit="exact")}})
    for n in range(1, 5):
        assert np.isclose(exact(rows(n))["mean"].item(), rows(n).numpy().mean(), atol=1e-6)

    class Train(Affine):
        def build(self, x):
            loss = self.model(x).square().mean(dim=1)
            loss.sum().backward()
            return loss

    def train(dims, model):
        graph = Train(dims, model)
        graph.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.1))
        return graph

    with pytest.raises(ValueError, match="its plans update variable 'model.0.(bias|weight)'; padding would change"):
        train({"x": {0: sl.Dim("batch", max=4, buckets=(4,))}}, nn.Sequential(nn.Linear(6, 3)))(rows(3))
    sl.manual_seed(0)
    models = [nn.Sequential(nn.Linear(6, 3)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    family = train({"x": {0: sl.Dim("batch", max=4, fit="exact", buckets=(2, 4))}}, models[0])
    alone = {n: train(None, models[1]) for n in (2, 4)}
    for step in range(6):
        n = (2, 4)[step % 2]
        assert np.array_equal(family(rows(n, seed=step)).numpy(), alone[n](rows(n, seed=step)).numpy())
    assert np.array_equal(models[0][0].weight.detach().numpy(), models[1][0].weight.detach().numpy())


def test_an_axis_that_only_happens_to_be_as_long_is_not_cut():
    """With one bucket of 6, nothing but another trace tells the batch from the 6 columns."""

    class Square(nn.Graph):
        def build(self, x):
            return x + 1

    graph = Square()
    graph.config.set_dims({"x": {0: sl.Dim("batch", max=6, buckets=(6,))}})
    assert graph(rows(4)).shape == (4, 6)


def test_memory_is_that_of_the_largest_member():
    sizes = (8, 16, 32)
    family = Affine({"x": {0: sl.Dim("batch", max=32, buckets=sizes)}}).compile(rows(32))
    alone = {n: Affine(model=family.model).compile(rows(n)).memory() for n in sizes}
    memory = family.memory()
    assert memory["plans"] == [alone[n]["total"] for n in sizes]
    largest = alone[32]
    assert memory["variables"] == largest["variables"]
    assert memory["arenas"] == largest["total"] - largest["variables"] - largest["packed"] - largest["constants"]
    assert memory["constants"] == sum(m["constants"] for m in alone.values())
    assert memory["total"] == sum(memory["spaces"].values())


def test_a_call_that_fails_leaves_the_family_as_it_was():
    def picky(x):
        if x.max() > 100:
            raise ValueError("too large")
        return x

    class Picky(nn.Graph):
        def build(self, x):
            return sl.host_function(picky, x, out=(tuple(x.shape), x.dtype))

    graph = Picky()
    graph.config.set_dims({"x": {0: sl.Dim("n", max=4, buckets=(2, 4))}})
    bad = graph(sl.full((2, 3), 1000.0))
    good = graph(sl.ones(4, 3))
    assert np.array_equal(good.numpy(), np.ones((4, 3), np.float32))
    with pytest.raises(Exception, match="too large"):
        bad.numpy()
    assert np.array_equal(graph(sl.ones(1, 3)).numpy(), np.ones((1, 3), np.float32))
