"""graph.config.add_pattern: a rewrite that a user writes as two functions."""

import numpy as np
import pytest

import sluice as sl
from sluice import nn


def graph_of(build, *patterns):
    graph = nn.Graph()
    graph.build = build
    graph.config.disable_pass("fuse_elementwise")  # so that ops are kernels
    for pattern in patterns:
        graph.config.add_pattern(*pattern)
    return graph


def ops(graph):
    return [kernel["op"] for kernel in graph.plan["kernels"]]


SILU = ("silu", lambda x: x * x.sigmoid(), nn.functional.silu, sl.ones(2, 2))


def test_what_a_pattern_finds_is_replaced_wherever_it_is():  # MF-03
    def build(x, z):
        y = x * x.sigmoid()
        return (y @ y) * (y @ y).sigmoid(), z * sl.sigmoid(z)

    x, z = sl.randn(3, 3), sl.randn(2, 5, 4)
    graph, plain = graph_of(build, SILU), graph_of(build)
    for a, b in zip(graph(x, z), plain(x, z), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    assert ops(plain).count("sigmoid") == 3 and ops(graph).count("silu") == 3
    assert not {"sigmoid", "mul"} & set(ops(graph))
    assert graph.config.report()["pattern silu"] == 3 == graph.config.report()["patterns"]
    assert repr(graph.config) == "config(disabled_passes=['fuse_elementwise'], patterns=['silu'])"


def test_several_operands_and_constants():  # MF-03
    before = lambda x, w, b: (x @ w + b) * 0.5  # noqa: E731
    after = lambda x, w, b: nn.functional.linear(x, w.transpose(0, 1) * 0.5, b * 0.5)  # noqa: E731
    pattern = ("half", before, after, sl.ones(2, 3), sl.ones(3, 4), sl.ones(4))
    operands = sl.randn(5, 6), sl.randn(6, 7), sl.randn(7)

    def both(x, w, b):
        return (x @ w + b) * 0.5, (x @ w + b + 1) * 0.5, (x @ w + b - 1) * 0.25

    graph, plain = graph_of(both, pattern), graph_of(both)
    for name in ("common_subexpressions", "fuse_bias"):  # of three equal products each has a reader of its own
        graph.config.disable_pass(name)
    for a, b in zip(graph(*operands), plain(*operands), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
    assert graph.config.report()["pattern half"] == 1 and ops(graph).count("linear") == 1 and ops(graph).count("matmul") == 2


@pytest.mark.parametrize("why", ["read elsewhere", "an output", "another dtype", "other attributes", "another order", "of two devices"])
def test_what_differs_is_left_alone(why):  # MF-03
    def build(x):
        s = x.sigmoid()
        if why == "another order":
            return s * x
        if why == "of two devices":
            with sl.device("sim:0"):
                return x * s
        return {"read elsewhere": lambda: x * s + s.sum(), "an output": lambda: (x * s, s),
                "another dtype": lambda: x.double() * x.double().sigmoid(), "other attributes": lambda: nn.functional.softmax(x, 0)}[why]()

    softmax = ("silu", lambda x: nn.functional.softmax(x, 1), lambda x: x, sl.ones(2, 2))
    graph = graph_of(build, softmax if why == "other attributes" else SILU)
    plain = graph_of(build)
    x = sl.randn(4, 4)
    ours, theirs = graph(x), plain(x)
    for a, b in zip(ours if isinstance(ours, tuple) else (ours,), theirs if isinstance(theirs, tuple) else (theirs,), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    assert ops(graph) == ops(plain)
    with pytest.warns(UserWarning, match="the pattern silu has changed nothing"):
        assert graph.config.report()["pattern silu"] == 0


def test_what_would_give_another_type_is_left_alone():
    pattern = ("sums", lambda x: x.exp(), lambda x: x.exp().sum(0, keepdim=True), sl.ones(1, 2))
    graph = graph_of(lambda x, y: (x.exp(), y.exp()), pattern)
    x, y = sl.ones(3, 2), sl.ones(1, 4)
    a, b = graph(x, y)
    assert a.shape == (3, 2) and b.shape == (1, 4)
    assert graph.config.report()["pattern sums"] == 1  # of one row the sum has the type that was there


def test_patterns_see_what_those_before_them_have_made():
    relu = ("relu", lambda x: nn.functional.silu(x), lambda x: x.relu(), sl.ones(1))
    graph = graph_of(lambda x: x * x.sigmoid(), SILU, relu)
    assert graph(sl.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
    assert ops(graph) == ["relu"]


def test_a_pattern_of_what_a_module_computes_names_its_line_and_module():
    class Net(nn.Module):
        def forward(self, x):
            return x * x.sigmoid()

    class Build(nn.Graph):
        def __init__(self):
            super().__init__()
            self.gate = Net()
            self.config.add_pattern(*SILU)

        def build(self, x):
            return self.gate(x)

    graph = Build()
    graph(sl.ones(2))
    (kernel,) = graph.plan["kernels"]
    assert kernel["op"] == "silu" and kernel["module"] == "gate" and kernel["file"].endswith("test_patterns.py")


def test_a_graph_with_a_pattern_is_saved_and_loaded(tmp_path):
    pattern = ("silu3", lambda x: x * x.sigmoid() + 3.0, lambda x: nn.functional.silu(x) + 3.0, sl.ones(2))
    graph = graph_of(lambda x: x * x.sigmoid() + 3.0, pattern)
    x = sl.randn(7)
    expected = graph(x).numpy()
    assert ops(graph) == ["silu", "add"]
    sl.save(graph, tmp_path / "bundle")
    assert sl.load_graph(tmp_path / "bundle")(x).numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("pattern, message", [
    ((lambda x: (x, x), lambda x: x), "before has 2 results; it must have one"),
    ((lambda x: x, lambda x: x + 1), "before computes nothing; it must have an op"),
    ((lambda x: nn.functional.dropout(x, 0.5), lambda x: x), "before reads 'generator0', which is no argument and no constant"),
    ((lambda x: x + 1, lambda x: (x, x)), "after has 2 results; it must have one"),
])
def test_what_is_no_pattern_is_refused(pattern, message):
    with pytest.raises(ValueError, match=f"pattern 'p': {message}"):
        graph_of(lambda x: x + 1, ("p", *pattern, sl.ones(1)))(sl.ones(2))


def test_names_and_examples_are_needed():
    config = nn.Graph().config
    config.add_pattern(*SILU)
    for name in ("silu", "", 3):
        with pytest.raises(ValueError, match=f"add_pattern: got the name {name!r}; must be a text that no other pattern has"):
            config.add_pattern(name, *SILU[1:])
    with pytest.raises(ValueError, match="add_pattern: 'x': no examples; give a tensor for each argument"):
        config.add_pattern("x", lambda: 1, lambda: 2)
