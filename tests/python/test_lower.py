"""sl.lower: trace, look, compile, call."""

import pytest

import sluice as sl
from sluice import nn


def net(x, scale=2):
    return {"y": x.relu() * scale, "sum": x.sum()}


def test_each_stage_can_be_looked_at():
    x = sl.tensor([-1.0, 3.0])
    lowered = sl.lower(net, x, scale=3)
    text = lowered.text()
    assert text.startswith('graph "net" {') and 'input "x" : float32(2,)' in text
    assert "relu(" in text and "test_lower.py:" in text
    compiled = lowered.compile()
    assert compiled.plan["name"] == "net" and compiled.memory()
    result = compiled(x, scale=3)
    assert result["y"].tolist() == [0, 9] and result["sum"].item() == 2
    assert lowered.text() == text


def test_a_module_keeps_its_parameters():
    model = nn.Linear(2, 1)
    compiled = sl.lower(model, sl.ones(1, 2)).compile()
    with sl.no_grad():
        model.weight.fill_(2)
        model.bias.zero_()
    assert compiled(sl.ones(1, 2)).item() == 4


def test_a_graph_is_lowered_and_then_its_own():
    class Net(nn.Graph):
        def build(self, x):
            return x + 1

    graph = Net()
    lowered = sl.lower(graph, sl.zeros(2))
    assert not graph.is_compiled
    assert lowered.compile() is graph and graph.is_compiled
    assert lowered.compile() is graph
    assert graph(sl.zeros(2)).tolist() == [1, 1]
    with pytest.raises(sl.errors.RuntimeError, match="is compiled; lower it before"):
        sl.lower(graph, sl.zeros(2))


def test_arguments_and_errors_are_those_of_the_function():
    with pytest.raises(sl.errors.TypeError, match="net"):
        sl.lower(net)
    with pytest.raises(sl.errors.Error, match="test_lower.py"):
        sl.lower(lambda x: x @ x, sl.zeros(2, 3))

    @nn.Graph.with_dynamic_input_shape()
    class Several(nn.Graph):
        def build(self, x):
            return x

    with pytest.raises(sl.errors.RuntimeError, match="several plans"):
        sl.lower(Several(), sl.zeros(2))


def test_what_a_step_costs():  # JAX-03
    def f(x, w, conv):
        y = (x @ w).t()
        return y.sum(), sl.nn.functional.conv2d(conv, sl.ones(7, 3, 3, 3), padding=1)

    cost = sl.lower(f, sl.ones(5, 6), sl.ones(6, 8), sl.ones(2, 3, 10, 10)).cost_analysis()
    by_op = {op["op"]: op for op in cost["ops"]}
    assert by_op["matmul"]["flops"] == 2 * 5 * 6 * 8
    assert by_op["matmul"]["bytes accessed"] == 4 * (5 * 6 + 6 * 8 + 5 * 8)
    assert by_op["conv"]["flops"] == 2 * (2 * 7 * 10 * 10) * (3 * 3 * 3)
    assert by_op["permute"]["flops"] == by_op["permute"]["bytes accessed"] == 0
    assert cost["flops"] == sum(op["flops"] for op in cost["ops"]) and by_op["sum"]["source"].startswith("test_lower.py:")


def test_what_a_training_step_costs():  # JAX-03
    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = sl.nn.Sequential(sl.nn.Linear(32, 32), sl.nn.Linear(32, 32))
            self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))

        def build(self, x):
            loss = self.net(x).sum()
            loss.backward()
            return loss

    ops = sl.lower(Train(), sl.ones(64, 32)).cost_analysis()["ops"]
    products = [op for op in ops if op["op"] in ("linear", "matmul")]
    one = 2 * 64 * 32 * 32
    # Two products, the gradients of two weights, and one of an input: that of the first layer is for nobody.
    bias = 64 * 32
    assert [op["flops"] for op in products] == [one + bias] * 2 + [one] * 3
    assert [op["role"] for op in products] == ["forward"] * 2 + ["backward"] * 3
    assert {op["role"] for op in ops} == {"forward", "backward", "update"}
