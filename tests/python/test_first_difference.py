"""sluice.testing.first_difference finds the op with which a plan departs from eager code: patterns that compute something else stand for
passes with a defect."""

import pytest

import sluice as sl
from sluice import nn
from sluice.testing import first_difference


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.first(x).tanh()
        x = self.second(x).sigmoid()
        return self.third(x)


class Infer(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        return self.net(x), x + 1


def wrong(graph, before=lambda x: x.sigmoid(), after=lambda x: x.sigmoid() * 1.01):
    graph.config.add_pattern("wrong", before, after, sl.ones(1, 1))
    return graph


def test_plans_that_compute_the_same_have_none():
    net = Net()
    x = sl.randn(4, 6)
    before = [p.tolist() for p in net.parameters()]
    assert first_difference(lambda x: (net(x), x + 1), Infer(net), x) is None
    assert [p.tolist() for p in net.parameters()] == before


def test_the_op_that_deviates_first_is_named():
    sl.manual_seed(0)
    net = Net()
    found = first_difference(lambda x: (net(x), x + 1), wrong(Infer(net)), sl.randn(4, 6))
    assert found.op == "sigmoid" and found.module == "net" and found.source.startswith("test_first_difference.py:")
    assert found.got.shape == found.expected.shape == (4, 6)
    assert abs((found.got / found.expected).mean().item() - 1.01) < 1e-4
    assert str(found).startswith(f"sigmoid of net ({found.source}): Tensor-likes are not close")


def test_of_several_the_first_one():
    net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(5, 5), nn.Tanh())])
    graph = nn.Graph()
    graph.net = net
    graph.build = lambda x: net(x).sigmoid()
    wrong(graph, lambda x: x.tanh(), lambda x: x.tanh() + 0.01)
    graph.config.add_pattern("wrong, too", lambda x: x.sigmoid(), lambda x: x.sigmoid() * 2, sl.ones(1))
    found = first_difference(lambda x: net(x).sigmoid(), graph, sl.randn(3, 5))
    assert (found.op, found.module) == ("tanh", "net.1")


def test_training_is_compared_and_changes_nothing():
    net = Net()

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))

        def build(self, x):
            loss = (self.net(x) ** 2).sum()
            loss.backward()
            return loss

    before = [p.tolist() for p in net.parameters()]
    x = sl.randn(4, 6)
    assert first_difference(lambda x: (net(x) ** 2).sum(), Train(), x) is None
    found = first_difference(lambda x: (net(x) ** 2).sum(), wrong(Train(), lambda x: x.tanh(), lambda x: x.tanh() + 0.01), x)
    assert found.op == "tanh"
    assert [p.tolist() for p in net.parameters()] == before


def test_a_compiled_graph_goes_on_as_it_was():
    net = Net()
    graph = Infer(net)
    x = sl.randn(4, 6)
    expected = graph(x)[0].tolist()
    assert first_difference(lambda x: (net(x), x + 1), graph, x) is None
    assert graph(x)[0].tolist() == expected


def test_tolerances_are_the_callers():
    net = Net()
    x = sl.randn(4, 6)
    assert first_difference(lambda x: (net(x), x + 1), wrong(Infer(net)), x, rtol=0.5, atol=0.5) is None


def test_random_numbers_are_those_of_the_plan():
    class Drop(nn.Graph):
        def build(self, x):
            return nn.functional.dropout(x, 0.5) * 2

    def eager(x):
        state = sl.get_rng_state()
        try:
            return nn.functional.dropout(x, 0.5) * 2
        finally:
            sl.set_rng_state(state)

    assert first_difference(eager, Drop(), sl.ones(50)) is None


def test_another_program_is_told_from_a_wrong_plan():
    net = Net()
    with pytest.raises(RuntimeError, match="result 0 of 'Infer_.*' differs from that of eager code when its ops are run one by one, too"):
        first_difference(lambda x: (net(x) * 2, x + 1), wrong(Infer(net)), sl.randn(4, 6))


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(TypeError, match="first_difference: got Net; the second argument must be an nn.Graph"):
        first_difference(Net(), Net(), sl.ones(1, 6))

    class Host(nn.Graph):
        def build(self, x):
            return sl.host_function(lambda a: a + 1, x, out=[((2,), sl.float32)])

    with pytest.raises(NotImplementedError, match="op host_function .* cannot run by itself"):
        first_difference(lambda x: x + 1, Host(), sl.ones(2))

    class Batches(nn.Graph):
        def build(self, x):
            return x + 1

    graph = Batches()
    graph.config.set_gradient_accumulation_steps(2)
    with pytest.raises(NotImplementedError, match="has micro-batches or global tensors"):
        first_difference(lambda x: x + 1, graph, sl.ones(2))
