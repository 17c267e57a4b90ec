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
