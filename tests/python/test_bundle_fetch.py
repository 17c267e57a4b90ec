"""Bundles with a part of the results (save_graph's fetch)."""

import json

import numpy as np
import pytest

import sluice as sl
from sluice import nn


class Heads(nn.Graph):
    """A training step with three results, each with a layer of its own."""

    def __init__(self):
        super().__init__()
        sl.manual_seed(0)
        self.body = nn.Linear(4, 8)
        self.heads = nn.ModuleList([nn.Linear(8, n) for n in (2, 3, 5)])
        self.add_optimizer(sl.optim.SGD([*self.body.parameters(), *self.heads.parameters()], lr=0.1))

    def build(self, x):
        hidden = self.body(x).relu()
        first, second, third = (head(hidden) for head in self.heads)
        (first.sum() + second.sum() + third.sum()).backward()
        return {"first": first, "rest": [second, third]}


@pytest.fixture
def trained():
    graph, x = Heads(), sl.rand(6, 4)
    graph(x)["first"].numpy()
    return graph, x


def test_only_what_the_fetched_results_need_is_in_the_plan(trained, tmp_path):  # PS-08
    graph, x = trained
    sl.save_graph(graph, tmp_path / "one", fetch=[0])
    loaded = sl.load_graph(tmp_path / "one")
    assert [name for name, _, _ in loaded.outputs] == ["first"]
    plan = json.loads((tmp_path / "one" / "plan.json").read_text())
    assert {v["name"] for v in plan["variables"]} == {"body.weight", "body.bias", "heads.0.weight", "heads.0.bias"}
    before = {name: value.clone() for name, value in graph.body.state_dict().items()}
    expected = nn.functional.relu(graph.body(x)) @ graph.heads[0].weight.t() + graph.heads[0].bias
    for _ in range(2):  # it does not train
        (result,) = loaded(x)
        np.testing.assert_allclose(result.numpy(), expected.detach().numpy(), rtol=1e-6, atol=1e-6)
    assert all(sl.equal(value, graph.body.state_dict()[name]) for name, value in before.items())


def test_results_are_fetched_by_name_and_in_the_order_asked_for(trained, tmp_path):
    graph, x = trained
    names = [name for name, _, _ in graph.outputs]
    sl.save_graph(graph, tmp_path / "two", fetch=[names[2], 0])
    third, first = sl.load_graph(tmp_path / "two")(x)
    assert tuple(third.shape) == (6, 5) and tuple(first.shape) == (6, 2)
    sl.save_graph(sl.load_graph(tmp_path / "two"), tmp_path / "again", fetch=[1])  # of a bundle, too
    assert sl.equal(sl.load_graph(tmp_path / "again")(x)[0], first)


@pytest.mark.parametrize("fetch", [[], [3], [-1], ["nobody"], [0.5], [True]])
def test_results_that_are_not_there_are_named(trained, tmp_path, fetch):
    with pytest.raises(ValueError, match=r"save_graph: fetch is .*; must be numbers below 3, or names: \['first', "):
        sl.save_graph(trained[0], tmp_path / "none", fetch=fetch)
    assert not (tmp_path / "none").exists()


def test_a_result_that_is_named_twice_is_refused(trained, tmp_path):
    with pytest.raises(ValueError, match="output 'first' is named twice"):
        sl.save_graph(trained[0], tmp_path / "twice", fetch=[0, "first"])


def test_a_list_of_graphs_has_no_part(trained, tmp_path):
    with pytest.raises(TypeError, match="save_graph: fetch is for a graph with one plan"):
        sl.save_graph([trained[0]], tmp_path / "list", fetch=[0])
