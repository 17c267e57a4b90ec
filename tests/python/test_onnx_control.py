"""Branches and loops of programs as If, Scan and Loop of ONNX: equal in ONNX Runtime and when they are read again, whichever way a step goes."""

import numpy as np
import pytest
from onnx_models import INSTALLED, graph_of, needs_onnx
from test_onnx_export import by_onnxruntime, checked, listed

import sluice as sl
from sluice import nn

pytestmark = needs_onnx
if INSTALLED:
    import onnx


def nodes_of(graph):
    """All nodes, those of graphs within nodes too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes_of(attribute.g)


def held(path, model, *calls, **options):
    """Exports for the first call's arguments; every call has the program's results in ONNX Runtime, and its bits when the file is read
    again, eagerly and as a graph. Gives how often each op is there."""
    model = model.eval() if isinstance(model, nn.Module) else model
    sl.onnx.export(model, calls[0], path, **options)
    proto = checked(path)
    again = sl.onnx.load(path)
    for call in calls:
        with sl.no_grad():
            wanted = [t.numpy() for t in listed(nn.Graph.trace(model)(*call))]
            back, planned = ([t.numpy() for t in listed(f(*call))] for f in (again, graph_of(again)))
        theirs = by_onnxruntime(path, [t.numpy() for t in call])
        assert len(wanted) == len(theirs) == len(back) == len(planned)
        for ours, other, eager, plan in zip(wanted, theirs, back, planned):
            assert other.dtype == ours.dtype
            np.testing.assert_allclose(other, ours, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(eager, ours)
            np.testing.assert_array_equal(plan, ours)
    counts = {}
    for node in nodes_of(proto.graph):
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return counts


POSITIVE, NEGATIVE = sl.tensor([1.0, 2.0, 3.0]), sl.tensor([-1.0, -2.0, -4.0])


def test_a_condition_is_an_if_with_the_nodes_of_its_branches_inside(tmp_path):
    def f(x):
        return sl.cond(x.sum() > 0, lambda x: (x.exp(), x * 2), lambda x: (x.neg().log1p(), x - 1), (x,))

    path = tmp_path / "m.onnx"
    counts = held(path, f, (POSITIVE,), (NEGATIVE,))
    assert counts["If"] == 1 and "Where" not in counts
    outside = [n.op_type for n in onnx.load(path).graph.node]
    assert "Exp" not in outside and "Log" not in outside  # a step computes one of them


def test_weights_are_read_from_within_a_branch(tmp_path):
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.small, self.large = nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

        def forward(self, x):
            return sl.cond(x.mean() > 0, self.small, self.large, (x,))

    path = tmp_path / "m.onnx"
    assert held(path, Either(), (POSITIVE.reshape(1, 3),), (NEGATIVE.reshape(1, 3),))["If"] == 1
    names = {i.name for i in onnx.load(path).graph.initializer}
    assert {"small.weight", "large.0.weight", "large.2.bias"} <= names
    assert len(sl.onnx.load(path).state_dict()) == 6


def test_branches_within_branches_and_one_after_another(tmp_path):
    def f(x):
        def inner(x):
            return sl.cond(x.max() > 2.5, lambda x: x * 10, lambda x: x / 10, (x,))

        y = sl.cond(x.sum() > 0, inner, lambda x: x.abs(), (x,))
        return y, sl.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (y,))

    counts = held(tmp_path / "m.onnx", f, (POSITIVE,), (NEGATIVE,), (sl.tensor([0.5, 0.5, 1.0]),))
    assert counts["If"] == 3


def test_a_choice_among_three(tmp_path):
    def f(i, x):
        return sl.cond(i == 0, lambda x: x + 1, lambda x: sl.cond(i == 1, lambda x: x * 2, lambda x: x.exp(), (x,)), (x,))

    held(tmp_path / "m.onnx", f, *((sl.tensor(i), POSITIVE) for i in range(3)))


def smoothed(x):
    def step(mean, row):
        mean = mean + 0.5 * (row - mean)
        return mean, mean * 2

    return sl.scan(step, x[0], x)


def test_so_many_turns_are_a_scan(tmp_path):
    counts = held(tmp_path / "m.onnx", smoothed, (sl.randn(5, 3),), (sl.randn(5, 3),))
    assert counts["Scan"] == 1 and counts["Mul"] == 2  # the body is there once


def test_the_number_of_turns_may_vary(tmp_path):
    path = tmp_path / "m.onnx"
    sl.onnx.export(smoothed, sl.randn(5, 3), path, dynamic={"x": {0: "time"}})
    checked(path)
    for time in (2, 9):
        x = sl.randn(time, 3)
        for ours, theirs in zip(smoothed(x), by_onnxruntime(path, [x.numpy()])):
            np.testing.assert_allclose(theirs, ours.numpy(), rtol=1e-6, atol=1e-6)


def test_backwards_and_without_rows(tmp_path):
    def doubled(x):
        return sl.scan(lambda s, _: (s * 2 - x, s), x + 1, None, length=4)

    assert held(tmp_path / "a.onnx", doubled, (POSITIVE,))["Scan"] == 1
    assert held(tmp_path / "b.onnx", lambda x: sl.scan(lambda s, row: (s + row, s * row), x[0], x, reverse=True), (sl.randn(4, 3),))["Scan"] == 1


def test_recurrent_nets_are_scans_of_any_length(tmp_path):
    sl.manual_seed(0)
    lstm, path = nn.LSTM(3, 4, num_layers=2, batch_first=True).eval(), tmp_path / "m.onnx"
    sl.onnx.export(lambda x: lstm(x)[0], sl.randn(2, 5, 3), path, dynamic={"x": {0: "batch", 1: "time"}})
    assert [n.op_type for n in nodes_of(checked(path).graph)].count("Scan") == 2
    for shape in ((1, 2, 3), (3, 8, 3)):
        x = sl.randn(*shape)
        with sl.no_grad():
            np.testing.assert_allclose(by_onnxruntime(path, [x.numpy()])[0], lstm(x)[0].numpy(), rtol=1e-5, atol=1e-6)


def collatz(n):
    odd_or_even = lambda n: sl.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, (n,))  # noqa: E731
    return sl.while_loop(lambda n, steps: n > 1, lambda n, steps: (odd_or_even(n), steps + 1), (n, sl.tensor(0)))[1]


def test_as_long_as_it_takes_is_a_loop(tmp_path):
    counts = held(tmp_path / "m.onnx", collatz, *((sl.tensor(n),) for n in (1, 6, 27)))
    assert counts["Loop"] == 1 and counts["If"] == 1


def test_python_as_it_is_written(tmp_path):
    @sl.jit.to_static
    def halved(x):
        steps = 0
        while x.sum() > 1:
            if steps > 100:
                return x, steps
            x = x / 2
            steps += 1
        return x, steps

    counts = held(tmp_path / "m.onnx", halved, (POSITIVE,), (NEGATIVE,), (sl.tensor([900.0, 1.0, 3.0]),))
    assert counts["Loop"] == 1


@pytest.mark.parametrize("opset", [17, 23])
def test_every_opset_has_them(opset, tmp_path):
    sl.onnx.export(collatz, sl.tensor(6), tmp_path / "m.onnx", opset=opset)
    assert checked(tmp_path / "m.onnx").opset_import[0].version == opset
    assert by_onnxruntime(tmp_path / "m.onnx", [np.array(27)])[0] == 111
