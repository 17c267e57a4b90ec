"""A plan per shape: what is compiled, kept and let go."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from test_graph_threads import in_threads
from affine import Affine, cached, rows


def test_alternating_shapes_compile_once_each():
    graph = cached()
    alone = {n: Affine(model=graph.model) for n in (32, 16, 8)}
    for _ in range(5):
        for n in (32, 16, 8):
            assert np.array_equal(graph(rows(n)).numpy(), alone[n](rows(n)).numpy())
    assert graph.traced == [(32, 6), (16, 6), (8, 6)]
    assert graph.members == [{"x": (n, 6)} for n in (32, 16, 8)]
    memory, largest = graph.memory(), alone[32].memory()
    assert memory["arenas"] == largest["total"] - largest["variables"] - largest["packed"] - largest["constants"]
    assert memory["total"] < 2 * largest["total"]


def test_memory_of_shapes_that_grow_counts_every_block():
    graph = cached(size=2)
    alone = {n: Affine(model=graph.model).compile(rows(n)).memory() for n in (64, 128, 256)}
    arenas = {n: m["total"] - m["variables"] - m["packed"] - m["constants"] for n, m in alone.items()}
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
    assert plans["arenas"] == sum(plans["plans"]) - 2 * (plans["variables"] + plans["packed"]) - plans["constants"]


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
