"""Interpreters, transformers, replacements of patterns and shapes, on graphs of sluice.fx."""

import pytest
import torch
import torch.fx
import torch.fx.passes.shape_prop

import sluice as sl
import sluice.fx.passes.shape_prop

FX = {"sluice": (sl, sl.fx), "torch": (torch, torch.fx)}


@pytest.fixture(params=FX)
def both(request):
    return FX[request.param]


def names(gm):
    return [n.name for n in gm.graph.nodes]


def net(lib):
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.w = lib.nn.Linear(3, 2), lib.nn.Parameter(lib.ones(2))

        def forward(self, x, k=2):
            y = lib.relu(self.linear(x)) + self.w * k
            return y.sum(dim=1), y

    return Net()


def test_an_interpreter_runs_node_by_node(both):
    lib, fx = both
    traced = fx.symbolic_trace(net(lib))
    seen = []

    class Mine(fx.Interpreter):
        def run_node(self, n):
            seen.append(n.name)
            return super().run_node(n)

        def call_function(self, target, args, kwargs):
            return super().call_function(lib.neg if target is lib.relu else target, args, kwargs)

    x = lib.rand(4, 3)
    got, expected = Mine(traced).run(x), -traced.linear(x) + traced.w * 2
    assert lib.allclose(got[1], expected) and lib.allclose(got[0], expected.sum(1)) and seen == names(traced)
    plain = fx.Interpreter(traced, garbage_collect_values=False)
    assert lib.equal(plain.run(x, 3)[1], traced(x, 3)[1]) and len(plain.env) == len(seen)
    nodes = list(traced.graph.nodes)
    assert lib.equal(fx.Interpreter(traced).run(x, initial_env={nodes[2]: lib.zeros(4, 2)})[1], (traced.w * 2).expand(4, 2))
    given = [x, 2]
    fx.Interpreter(traced).boxed_run(given)
    assert given == []
    with pytest.raises(RuntimeError, match="expected 2 arguments for placeholders but received 1"):
        fx.Interpreter(traced).boxed_run([x])
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x, but one was not passed in!"):
        fx.Interpreter(traced).run()


def test_an_interpreter_says_where_it_was():
    traced = sl.fx.symbolic_trace(lambda x: sl.matmul(x, x) + 1)
    with pytest.raises(Exception, match=r"While executing %matmul : \[num_users=1\] = call_function"):
        sl.fx.Interpreter(traced).run(sl.ones(2, 3))


def test_a_transformer_makes_another_module(both):
    lib, fx = both
    traced = fx.symbolic_trace(net(lib))

    class Mine(fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target is lib.relu:
                return self.call_method("tanh", args, kwargs) * 2
            return super().call_function(target, args, kwargs)

    made, x = Mine(traced).transform(), lib.rand(4, 3)
    assert lib.allclose(made(x)[1], traced.linear(x).tanh() * 2 + traced.w * 2)
    assert [n.op for n in made.graph.nodes].count("call_method") == 2 and made.linear is traced.linear
    assert lib.equal(fx.Transformer(traced).transform()(x)[0], traced(x)[0])


def test_patterns_are_replaced(both):
    lib, fx = both

    def f(x, w):
        a = lib.relu(lib.cat([x, w]).sum())
        b = lib.relu(lib.cat([w, x]).sum())
        return lib.stack([a, b]) + lib.relu(x).sum()

    traced = fx.symbolic_trace(f)
    found = fx.replace_pattern(traced, lambda a, b: lib.relu(lib.cat([a, b]).sum()), lambda a, b: lib.maximum(a.max(), b.min()))
    assert [m.nodes_map[m.anchor].name for m in found] == ["relu", "relu_1"] and len(found[0].nodes_map) >= 4
    kinds = [n.target for n in traced.graph.nodes if n.op == "call_function"]
    assert kinds.count(lib.maximum) == 2 and lib.cat not in kinds and kinds.count(lib.relu) == 1
    x, w = lib.tensor([1.0, 2.0]), lib.tensor([5.0, 7.0])
    assert traced(x, w).tolist() == [8.0, 10.0]
    traced.graph.lint()


def test_values_that_others_need_are_not_replaced(both):
    lib, fx = both

    def f(x):
        y = lib.neg(x)
        return lib.relu(y) + y

    traced = fx.symbolic_trace(f)
    assert fx.replace_pattern(traced, lambda x: lib.relu(lib.neg(x)), lambda x: lib.sin(x)) == []
    assert fx.replace_pattern(traced, lambda x: x + 1, lambda x: x) == []
    assert fx.replace_pattern(fx.symbolic_trace(lambda x: x + 2), lambda x: x + 1, lambda x: x) == []
    assert names(traced) == ["x", "neg", "relu", "add", "output"]


def test_replacements_may_have_modules():
    class Scaled(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = sl.nn.Parameter(sl.full((1,), 3.0))

        def forward(self, x):
            return x * self.w

    traced = sl.fx.symbolic_trace(lambda x: sl.relu(x) + 1)
    assert len(sl.fx.replace_pattern(traced, lambda x: sl.relu(x), Scaled())) == 1
    assert traced(sl.ones(1)).item() == 4 and list(traced.state_dict()) == ["w"]
    with pytest.raises(ValueError, match="replacement: 2 inputs and 1 results; must have 1 and 1"):
        sl.fx.replace_pattern(traced, lambda x: sl.relu(x), lambda x, y: x + y)
    with pytest.raises(ValueError, match="pattern: computes nothing"):
        sl.fx.replace_pattern(traced, lambda x: x, lambda x: x + 1)


def test_shapes_are_noted(both):
    lib, fx = both
    traced = fx.symbolic_trace(net(lib))
    fx.passes.shape_prop.ShapeProp(traced).propagate(lib.rand(4, 3))
    metas = {n.name: n.meta.get("tensor_meta") for n in traced.graph.nodes}
    assert tuple(metas["linear"].shape) == (4, 2) and metas["linear"].dtype == lib.float32 and metas["linear"].stride == (2, 1)
    assert metas["linear"].requires_grad and not metas["x"].requires_grad and metas["k"] is None
    assert tuple(metas["output"][0].shape) == (4,) and tuple(metas["sum_1"].shape) == (4,)
