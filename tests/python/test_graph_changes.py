"""A step reads what there is at the call: a change that the plan cannot follow compiles the graph again."""

import gc
import warnings
import weakref

import numpy as np
import pytest

import sluice as sl
from sluice import nn


class Apply(nn.Graph):
    def __init__(self, module=None, function=None, **attributes):
        super().__init__()
        self.module, self.function = module, function
        for name, value in attributes.items():
            setattr(self, name, value)

    def build(self, x):
        return self.function(self, x) if self.function else self.module(x)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)
        self.drop = nn.Dropout(0.5)
        self.scale = 2.0
        self.shift = [0.0, 1.0]
        self.mask = sl.ones(2)

    def forward(self, x):
        return self.drop(self.lin(x)) * self.scale * self.mask + self.shift[1]


def agree(graph, module, x):
    np.testing.assert_allclose(graph(x).detach().numpy(), module(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def new_memory(m):
    m.lin.weight.data = sl.full((2, 2), 3.0)


def new_parameter(m):
    m.lin.weight = nn.Parameter(sl.full((2, 2), 4.0))


def no_bias(m):
    m.lin.bias = None


def new_module(m):
    m.lin = nn.Linear(2, 2)


def number(m):
    m.scale = 5.0


def in_a_list(m):
    m.shift[1] = 7.0


def captured_in_place(m):
    m.mask.zero_()


def captured_memory(m):
    m.mask.data = sl.full((2,), 9.0)


def captured_object(m):
    m.mask = sl.full((2,), 8.0)


def hook(m):
    m.lin.register_forward_hook(lambda module, args, result: result * 3)


def by_state_dict(m):
    m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()})


CHANGES = [new_memory, new_parameter, no_bias, new_module, number, in_a_list, captured_in_place, captured_memory, captured_object,
           hook, by_state_dict]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_change_is_seen_at_the_next_call(change):
    module = Scaled().eval()
    graph, x = Apply(module), sl.randn(3, 2)
    agree(graph, module, x)
    change(module)
    agree(graph, module, x)
    with sl.no_grad():
        for p in module.parameters():
            p.add_(1)  # and what is written afterwards, too
    agree(graph, module, x)


def test_the_mode_is_that_of_the_first_call_and_changes_are_warned_of():
    module = Scaled()
    train, x = Apply(module), sl.ones(64, 2)
    assert (train(x) == 1).any()  # dropped, and shifted by 1
    module.eval()
    with pytest.warns(RuntimeWarning, match="module.drop is in evaluation mode now, .*of its first call, training; make another graph for evaluation mode"):
        assert (train(x) == 1).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (train(x) == 1).any()  # once
        evaluate = Apply(module)
        agree(evaluate, module, x)
        module.train()
        assert not (evaluate(x) == 1).any()  # there is a graph for the other mode


def test_what_does_not_matter_compiles_nothing():
    module = Scaled().eval()
    graph, x = Apply(module), sl.randn(3, 2)
    graph(x)
    plan = graph._call
    module.unused, module.scale = "note", 2.0
    module.shift = [0.0, 1.0]
    graph.another = 3
    with sl.no_grad():
        module.lin.weight.mul_(2)
    agree(graph, module, x)
    assert graph._call is plan


def test_attributes_of_the_graph_itself():
    graph = Apply(function=lambda g, x: x * g.factor, factor=2.0)
    assert graph(sl.ones(2)).tolist() == [2, 2]
    graph.factor = 3.0
    assert graph(sl.ones(2)).tolist() == [3, 3]


def test_what_build_counts_for_itself_is_left_alone():
    def count(g, x):
        g.calls += 1
        return x + g.calls

    graph = Apply(function=count, calls=0)
    assert [graph(sl.zeros(1)).item() for _ in range(3)] == [1, 1, 1] and graph.calls == 1


def test_tensors_from_outside_are_read_as_they_are():
    outside = sl.ones(2)
    graph = Apply(function=lambda g, x: x + outside)
    assert graph(sl.zeros(2)).tolist() == [1, 1]
    outside.add_(4)
    assert graph(sl.zeros(2)).tolist() == [5, 5]


def test_parameters_that_need_no_gradient_any_more_are_not_updated():
    class Train(nn.Graph):
        def __init__(self, module):
            super().__init__()
            self.module = module
            self.add_optimizer(sl.optim.SGD(module.parameters(), lr=0.5))

        def build(self, x):
            loss = self.module(x).sum()
            loss.backward()
            return loss

    module = nn.Linear(2, 1)
    graph, x = Train(module), sl.ones(1, 2)
    before = module.weight.tolist()
    graph(x).item()
    trained = module.weight.tolist()
    assert trained != before
    module.weight.requires_grad_(False)
    bias = module.bias.tolist()
    graph(x).item()
    assert module.weight.tolist() == trained and module.bias.tolist() != bias
    module.weight.requires_grad_(True)
    graph(x).item()
    assert module.weight.tolist() != trained


@pytest.mark.parametrize("draw", [lambda: sl.empty(16).normal_(), lambda: sl.empty(16).uniform_(), lambda: sl.empty(16).uniform_(2, 3),
                                  lambda: sl.zeros(16).bernoulli_(0.5), lambda: sl.randn(16), lambda: sl.empty(16).normal_(5, 0.1)])
def test_random_numbers_are_drawn_at_every_step(draw):
    graph = Apply(function=lambda g, x: x + draw())
    results = [graph(sl.zeros(16)).tolist() for _ in range(4)]
    assert len({tuple(r) for r in results}) == 4
    eager = [draw().mean().item() for _ in range(100)]
    assert abs(np.mean(results) - np.mean(eager)) < 1


def test_a_permutation_is_refused_with_what_to_do():
    with pytest.raises(NotImplementedError, match="randperm: inside a graph .*argument of the call.*host_function"):
        Apply(function=lambda g, x: x[sl.randperm(4)])(sl.ones(4))


def test_changes_at_every_call_are_warned_of_once():
    graph = Apply(function=lambda g, x: x * g.factor, factor=0.0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in range(9):
            graph.factor = float(i)
            assert graph(sl.ones(1)).item() == i
    assert len(told) == 1
    assert "compiled for the 6th time, because of a change of Apply.factor" in str(told[0].message)


def test_a_change_that_build_cannot_take_is_an_error_and_loses_nothing():
    module = nn.Linear(2, 2)
    graph, x = Apply(module), sl.ones(1, 2)
    first = graph(x).tolist()
    weight = module.weight
    module.weight = nn.Parameter(sl.ones(2, 5))
    with pytest.raises(RuntimeError, match="feature counts differ"):
        graph(x)
    module.weight = weight
    assert graph(x).tolist() == first


def test_shapes_and_changes_together():
    @nn.Graph.with_dynamic_input_shape()
    class Shapes(nn.Graph):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def build(self, x):
            return self.module(x)

    module = Scaled().eval()
    graph = Shapes(module)
    for rows in (1, 3):
        agree(graph, module, sl.randn(rows, 2))
    module.scale = -1.0
    for rows in (3, 1, 2):
        agree(graph, module, sl.randn(rows, 2))


def test_graphs_are_freed_as_before():
    graph = Apply(Scaled())
    graph(sl.ones(1, 2))
    gone = weakref.ref(graph)
    gc.disable()
    try:
        del graph
        assert gone() is None
    finally:
        gc.enable()
