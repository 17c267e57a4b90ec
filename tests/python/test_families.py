"""Graphs with several plans: dims with padding, splitting or exact plans, and a plan per shape; shared memory; bundles."""

import json
import pathlib

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from test_graph_threads import in_threads


class Affine(nn.Graph):
    """Rows of x through a small net."""

    def __init__(self, dims=None, model=None, **kwargs):
        super().__init__(**kwargs)
        self.model = model or nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        self.traced = []
        if dims:
            self.config.set_dims(dims)

    def build(self, x):
        self.traced.append(tuple(x.shape))
        return self.model(x)


class Scale(nn.Graph):
    """Computes exactly, whatever the shape."""

    def __init__(self, dims=None, **kwargs):
        super().__init__(**kwargs)
        if dims:
            self.config.set_dims(dims)

    def build(self, x):
        return {"twice": x * 2, "both": (x.transpose(0, 1) + 1, x - 1)}


def rows(n, width=6, seed=0):
    return sl.from_numpy(np.random.default_rng(seed + n).standard_normal((n, width), np.float32))


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
    assert memory["arenas"] == largest["total"] - largest["variables"] - largest["constants"]
    assert memory["constants"] == sum(m["constants"] for m in alone.values())
    assert memory["total"] == sum(memory["spaces"].values())


def cached(size=10, enable_shared=True):
    @nn.Graph.with_dynamic_input_shape(size=size, enable_shared=enable_shared)
    class Cached(Affine):
        pass

    return Cached()


def test_alternating_shapes_compile_once_each():
    graph = cached()
    alone = {n: Affine(model=graph.model) for n in (32, 16, 8)}
    for _ in range(5):
        for n in (32, 16, 8):
            assert np.array_equal(graph(rows(n)).numpy(), alone[n](rows(n)).numpy())
    assert graph.traced == [(32, 6), (16, 6), (8, 6)]
    assert graph.members == [{"x": (n, 6)} for n in (32, 16, 8)]
    memory, largest = graph.memory(), alone[32].memory()
    assert memory["arenas"] == largest["total"] - largest["variables"] - largest["constants"]
    assert memory["total"] < 2 * largest["total"]


def test_memory_of_shapes_that_grow_counts_every_block():
    graph = cached(size=2)
    alone = {n: Affine(model=graph.model).compile(rows(n)).memory() for n in (64, 128, 256)}
    arenas = {n: m["total"] - m["variables"] - m["constants"] for n, m in alone.items()}
    for n, expected in [(64, arenas[64]), (128, arenas[64] + arenas[128]), (256, arenas[128] + arenas[256]),
                        (64, arenas[256])]:
        graph(rows(n)).numpy()
        assert graph.memory()["arenas"] == expected, n


def test_a_size_that_recurs_gets_a_plan_of_its_own(tmp_path):
    graph = Affine({"x": {0: sl.Dim("batch", max=16, exact_after=3)}})
    results = [graph(rows(11)) for _ in range(2)]
    assert {"batch": 11} not in graph.members
    results.append(graph(rows(11)))
    for thread in graph._call._builder.threads:
        thread.join()
    assert graph.members[-1] == {"batch": 11} and graph.traced[-1] == (11, 6)
    results += [graph(rows(11)) for _ in range(4)]
    assert graph.plan["inputs"][0]["shape"][0] == 11
    assert len(graph._call._builder.threads) == 1
    for result in results:
        assert np.allclose(result.numpy(), results[0].numpy(), atol=1e-6)
    assert graph(rows(9)).shape == (9, 3)  # with padding to 11
    assert graph.plan["inputs"][0]["shape"][0] == 11
    sl.save(graph, tmp_path / "f")
    assert sl.load_graph(tmp_path / "f").members == graph.members
    with pytest.raises(ValueError, match="exact_after is 2; must be 0"):
        sl.Dim("n", max=4, fit="exact", exact_after=2)


def test_the_shape_called_longest_ago_goes():
    graph = cached(size=2)
    results = [graph(rows(n)) for n in (4, 3, 4, 2, 4)]
    assert graph.traced == [(4, 6), (3, 6), (2, 6)]
    assert graph.members == [{"x": (2, 6)}, {"x": (4, 6)}]
    graph(rows(3))
    assert graph.traced[3:] == [(3, 6)]
    for n, result in zip((4, 3, 4, 2, 4), results):  # also of the plan that went
        assert np.allclose(result.numpy(), graph.model(rows(n)).detach().numpy(), atol=1e-6)
    with pytest.raises(ValueError, match="size is 0; must be an int of at least 1"):
        nn.Graph.with_dynamic_input_shape(size=0)
    apart = cached(enable_shared=False)
    for n in (4, 8):
        apart(rows(n))
    plans = apart.memory()
    assert plans["arenas"] == sum(plans["plans"]) - 2 * plans["variables"] - plans["constants"]


def test_a_cache_trains():
    @nn.Graph.with_dynamic_input_shape()
    class Train(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    models = [nn.Linear(6, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    graph = Train(models[0])
    optim = sl.optim.SGD(models[1].parameters(), lr=0.1, momentum=0.9)
    for step, n in enumerate([4, 2, 4, 3, 2]):
        x = rows(n, seed=step)
        loss = graph(x)
        optim.zero_grad()
        expected = models[1](x).square().mean()
        expected.backward()
        optim.step()
        assert np.isclose(loss.item(), expected.item(), rtol=1e-5)
    assert np.allclose(models[0].weight.detach().numpy(), models[1].weight.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("make", [cached, lambda: Affine({"x": {0: sl.Dim("batch", max=8, buckets=(2, 8), fit="split")}})],
                         ids=["cache", "dims"])
def test_threads_may_call_with_different_shapes(make):
    graph = make()
    expected = {n: graph.model(rows(n)).detach().numpy() for n in range(1, 9)}

    def work(k):
        pending = []
        for i in range(12):
            n = (k + i) % 8 + 1
            result = graph(rows(n)) if (k + i) % 3 else graph.try_call(rows(n))
            if result is not None:
                pending.append((n, result))
        for n, result in pending:
            assert np.allclose(result.numpy(), expected[n], atol=1e-5)

    in_threads(6, work)
    graph.synchronize()
    graph.close()


def test_families_are_saved_and_loaded(tmp_path):
    graph = Affine({"x": {0: sl.Dim("batch", max=8, buckets=(1, 4, 8))}})
    graph(rows(3))
    sl.save(graph, tmp_path / "f")
    loaded = sl.load_graph(tmp_path / "f")
    assert loaded.members == graph.members and loaded.inputs == graph.inputs
    for n in range(1, 9):
        assert np.array_equal(loaded(rows(n)).numpy(), graph(rows(n)).numpy())
    assert loaded.memory() == {**graph.memory(), "mapped": loaded.memory()["mapped"]}
    with pytest.raises(ValueError, match="axis 0 is 9; dim 'batch' is at most 8"):
        loaded(rows(9))
    files = sorted(str(p.relative_to(tmp_path / "f")) for p in (tmp_path / "f").rglob("*") if p.is_file())
    assert files == ["family.json", *[f"members/{i}/{f}" for i in range(3) for f in ("graph.txt", "plan.json")], "meta.json",
                     "weights.safetensors"]
    sl.save(loaded, tmp_path / "again")
    for f in files:
        assert (tmp_path / "again" / f).read_bytes() == (tmp_path / "f" / f).read_bytes(), f


def test_a_plan_per_shape_is_saved_as_a_family_of_exact_plans(tmp_path):
    graph = cached()
    graph(rows(2))
    sl.save(graph, tmp_path / "one")  # of one shape, it is a plan
    assert (tmp_path / "one/plan.json").exists()
    assert np.array_equal(sl.load_graph(tmp_path / "one")(rows(2)).numpy(), graph(rows(2)).numpy())
    for n in (5, 3):
        graph(rows(n))
    sl.save(graph, tmp_path / "all")
    loaded = sl.load_graph(tmp_path / "all")
    assert loaded.members == [{"x.0": 2}, {"x.0": 5}, {"x.0": 3}]
    for n in (3, 2, 5, 2):
        assert np.array_equal(loaded(rows(n)).numpy(), graph(rows(n)).numpy())
    with pytest.raises(ValueError, match=r"dim 'x.0' is 4; there are plans for 2, 3, 5, and its fit is exact"):
        loaded(rows(4))
    with pytest.raises(ValueError, match="axis 0 is 6; dim 'x.0' is at most 5"):
        loaded(rows(6))
    assert (tmp_path / "all/weights.safetensors").stat().st_size < 2 * (tmp_path / "one/weights.safetensors").stat().st_size


def test_a_cache_that_trains_is_saved(tmp_path):
    @nn.Graph.with_dynamic_input_shape()
    class Train(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x, scale):
            loss = (self.model(x) * scale).square().mean()
            loss.backward()
            return {"loss": loss, "scaled": scale * 2}

    model = nn.Linear(6, 3)
    graph = Train(model)
    calls = [(rows(n), rows(n, 3)) for n in (4, 2, 3)]
    for call in calls:
        graph(*call)
    sl.save(graph, tmp_path / "train")
    loaded = sl.load_graph(tmp_path / "train")
    assert loaded.members == [{"x.0": n} for n in (4, 2, 3)]  # both arguments have as many rows
    for call in calls * 2:  # one variable, whichever plan updates it
        got, expected = loaded(*call), graph(*call)
        assert np.array_equal(got["loss"].numpy(), expected["loss"].numpy())
        assert np.array_equal(got["scaled"].numpy(), expected["scaled"].numpy())


def test_an_engine_holds_what_the_ledger_of_a_family_says(tmp_path):
    graph = Affine({"x": {0: sl.Dim("batch", max=64, buckets=(16, 32, 64))}}).compile(rows(3))
    sl.save(graph, tmp_path / "f")
    engine = sl._C.Engine()
    session = engine.load(str(tmp_path / "f"))
    for n in (64, 3, 20, 40, 16):
        assert np.allclose(session.run([rows(n)])[0].numpy(), graph(rows(n)).numpy(), atol=1e-6)
    assert session.ledger_bytes() == graph.memory()["total"]
    assert engine.memory_stats("host")["peak_bytes"] == session.ledger_bytes() - session.counters()["mapped"]


def test_broken_families_are_errors_that_name_the_file(tmp_path, without_digest):
    graph = Affine({"x": {0: sl.Dim("batch", max=4, buckets=(2, 4))}})
    graph.compile(rows(3))
    sl.save(graph, tmp_path / "f")
    without_digest(tmp_path / "f")
    index = json.loads((tmp_path / "f/family.json").read_text())

    def error(change):
        broken = json.loads(json.dumps(index))
        change(broken)
        (tmp_path / "f/family.json").write_text(json.dumps(broken))
        with pytest.raises((ValueError, OSError)) as caught:
            sl.load_graph(tmp_path / "f")
        return str(caught.value)

    assert error(lambda f: f.update(members=[[2], [3], [4]])).startswith(f"{tmp_path}/f/members/2: not a directory")
    exchanged = error(lambda f: f.update(members=[[4], [2]]))  # the largest is looked at first
    assert "member (2): input 'x' of the plan is float32(4, 6)" in exchanged or "member (4): input 'x' of the plan is float32(2, 6)" in exchanged
    assert error(lambda f: f["dims"][0].update(fit="x")).startswith(f"{tmp_path}/f/family.json: dims[0].fit: ")
    assert error(lambda f: f["outputs"].pop()).startswith(f"{tmp_path}/f/family.json: ")
    (tmp_path / "f/family.json").write_text("[")
    with pytest.raises(ValueError, match="family.json: not JSON"):
        sl.load_graph(tmp_path / "f")


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
