"""cond(): one of two functions, chosen by a tensor. Eager programs with Python's if, and torch, are the oracles."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn

torch = pytest.importorskip("torch")


class Calls(nn.Graph):
    """A graph of a function of tensors."""

    def __init__(self, function, *modules):
        super().__init__(name="calls")
        self.function = function
        self.inner = nn.ModuleList(modules)

    def build(self, *inputs):
        return self.function(*inputs)


def left_out(graph):
    """Kernels that belonged to branches not taken, over all steps."""
    graph.synchronize()
    return sum(actor["left_out"] for actor in graph.counters()["actors"])


def numbers(*shape, seed=0):
    return sl.from_numpy(np.random.RandomState(seed).randn(*shape).astype(np.float32))


def test_eager_calls_one_of_them():
    called = []
    true_fn = lambda x: called.append("true") or x + 1
    false_fn = lambda x: called.append("false") or x - 1
    assert sl.cond(True, true_fn, false_fn, (sl.tensor(1.0),)).item() == 2
    assert sl.cond(sl.tensor([False]), true_fn, false_fn, [sl.tensor(1.0)]).item() == 0
    assert called == ["true", "false"]


@pytest.mark.parametrize("granularity", ["program", "op"])
def test_a_step_runs_the_kernels_of_one_branch(granularity):  # ACT-07
    runs = {"true": 0, "false": 0}

    def counted(name, add):
        def function(array):
            runs[name] += 1
            return array + np.float32(add)

        return lambda x: sl.host_function(function, x, out=((3,), sl.float32), stream="compute")

    graph = Calls(lambda p, x: sl.cond(p, counted("true", 1), counted("false", 2), (x,)))
    if granularity == "op":
        graph.config.set_granularity("op")
    for step, pred in enumerate([True, False, False, True, False, False]):
        y = graph(sl.tensor(pred), sl.full((3,), float(step)))
        assert y.numpy().tolist() == [step + (1 if pred else 2)] * 3
    graph.synchronize()
    assert runs == {"true": 2, "false": 4}
    assert left_out(graph) == 6


def test_the_interpreter_of_plans_agrees(tmp_path):
    import os
    import sys
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
    import plan_interpreter

    def function(p, q, x):
        inner = lambda x: sl.cond(q, lambda x: x * 2, lambda x: x * 3, (x,))
        return sl.cond(p, inner, lambda x: x - 1, (x,)), x + 1

    for granularity in ("program", "op"):
        graph = Calls(function)
        graph.config.set_granularity(granularity)
        x = sl.tensor([1.0, 2.0])
        expected = [[y.numpy() for y in graph(sl.tensor(p), sl.tensor(q), x)] for p in (False, True) for q in (False, True)]
        directory = str(tmp_path / granularity)
        sl.save(graph, directory)
        machine = plan_interpreter.open_bundle(directory)
        names = [i["name"] for i in machine.plan["inputs"]]
        steps = [dict(zip(names, (np.array(p), np.array(q), x.numpy()))) for p in (False, True) for q in (False, True)]
        for seed in (None, 2, 3):
            machine = plan_interpreter.open_bundle(directory)
            for ours, theirs in zip(machine.run(steps, seed), expected, strict=True):
                for mine, engine in zip(ours.values(), theirs, strict=True):
                    assert mine.tobytes() == engine.tobytes()
        graph.close()


def test_structures_and_closures():
    scale = sl.tensor([2.0])  # a constant from outside

    def function(p, x, y):
        z = x * y

        def true_fn(pair):
            return {"a": pair[0] + z, "b": (pair[1] * scale, None, 3)}

        def false_fn(pair):
            return {"a": x, "b": (y, None, 3)}  # as they are

        return sl.cond(p, true_fn, false_fn, ((x, y),))

    graph = Calls(function)
    x, y = numbers(4), numbers(4, seed=1)
    for pred in (True, False, True):
        got, expected = graph(sl.tensor(pred), x, y), function(pred, x, y)
        assert got["b"][1:] == (None, 3)
        assert got["a"].numpy().tolist() == expected["a"].numpy().tolist()
        assert got["b"][0].numpy().tolist() == expected["b"][0].numpy().tolist()


class Net(nn.Module):
    """`shared` works in both branches, `extra` in one, `x` is returned as it is by none."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.extra = nn.Linear(4, 4)

    def forward(self, choose, x):
        h = sl.tanh(self.shared(x))
        deep = lambda h: self.extra(self.shared(h)) + h
        flat = lambda h: sl.sin(self.shared(h))
        return choose(deep, flat, h).sum() + (self.shared.weight ** 2).sum()


class Training(nn.Graph):
    def __init__(self, net, optimizer):
        super().__init__(name="training")
        self.net = net
        self.add_optimizer(optimizer)

    def build(self, pred, x):
        loss = self.net(lambda t, f, h: sl.cond(pred, t, f, (h,)), x)
        loss.backward()
        return loss


def test_gradients_are_those_of_the_branch_taken():
    nets = [Net(), Net()]
    nets[1].load_state_dict(nets[0].state_dict())
    make = lambda net: sl.optim.SGD(net.parameters(), lr=0.1)
    graph, optimizer = Training(nets[0], make(nets[0])), make(nets[1])
    for step, pred in enumerate([True, False, False, True, True, False]):
        x = numbers(2, 4, seed=step)
        loss = graph(sl.tensor(pred), x)
        optimizer.zero_grad()
        expected = nets[1](lambda t, f, h: (t if pred else f)(h), x)
        expected.backward()
        # In a graph a branch not taken gives zeros, where the eager program gives no gradient at all.
        optimizer.step()
        np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-5)
        graph.synchronize()
        for (name, a), b in zip(nets[0].named_parameters(), nets[1].parameters()):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-6, err_msg=f"{name}, step {step}")
    assert left_out(graph) > 0


def test_gradients_of_inputs_are_torchs():
    def function(lib, choose, p, x, y):
        a = choose(p, lambda x, y: (lib.exp(x) * y, x), lambda x, y: (x, lib.sin(y * y)), (x, y))
        return (a[0] * a[1]).sum() + a[0].sum()

    def graph_of(p, x, y):
        x.requires_grad_(), y.requires_grad_()
        return sl.autograd.grad(function(sl, sl.cond, p, x, y), (x, y))

    graph = Calls(lambda p, x, y: graph_of(p, x * 1, y * 1))
    for pred in (True, False):
        x, y = numbers(5), numbers(5, seed=1)
        tx, ty = (torch.tensor(t.numpy(), requires_grad=True) for t in (x, y))
        expected = torch.autograd.grad(function(torch, lambda p, t, f, o: (t if p else f)(*o), pred, tx, ty), (tx, ty))
        for ours, theirs in zip(graph(sl.tensor(pred), x, y), expected):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_branches_within_branches():
    def function(p, q, x):
        def outer_true(x):
            y = x + 1
            return sl.cond(q, lambda: y * 2, lambda: y * x)

        return sl.cond(p, outer_true, lambda x: sl.cond(q, lambda: x - 5, lambda: x), (x,))

    graph = Calls(function)
    x = numbers(3)
    for p in (True, False):
        for q in (False, True):
            got, expected = graph(sl.tensor(p), sl.tensor(q), x), function(p, q, x)
            assert got.numpy().tobytes() == expected.numpy().tobytes(), (p, q)


def test_what_is_not_taken_does_no_harm():
    def function(p, x):
        return sl.cond(p, lambda x: sl.log(x), lambda x: x * 0 + 7, (x,))

    graph = Calls(function)
    graph.config.enable_check_numerics()
    assert graph(sl.tensor(False), sl.tensor([-1.0, 0.0])).numpy().tolist() == [7, 7]
    assert graph(sl.tensor(True), sl.tensor([1.0, 1.0])).numpy().tolist() == [0, 0]


def test_a_constant_predicate_is_pythons_if():
    graph = Calls(lambda x: sl.cond(sl.tensor(True), lambda x: x + 1, lambda x: x.no_such_method(), (x,)))
    assert graph(sl.tensor([1.0])).numpy().tolist() == [2]


def test_on_a_device_without_branches_both_are_computed():
    def function(p, x):
        with sl.device("sim:0"):
            return sl.cond(p, lambda x: x + 1, lambda x: x * 10, (x,))

    graph = Calls(function)
    for pred, expected in ((True, 3), (False, 20)):
        assert graph(sl.tensor(pred), sl.tensor([2.0])).numpy().tolist() == [expected]


def test_writes_to_the_outside_are_refused():
    buffer = nn.Module()
    buffer.register_buffer("total", sl.zeros(2))

    def write(target):
        def function(p, x):
            y = x * 2
            seen = {"input": x, "value": y, "buffer": buffer.total, "view": y[0:1]}[target]

            def true_fn(x):
                seen.add_(1)
                return x

            return sl.cond(p, true_fn, lambda x: x, (x,))

        return function

    for target in ("input", "value", "buffer", "view"):
        graph = Calls(write(target), buffer)
        with pytest.raises(RuntimeError, match="cond: a branch writes in place to a tensor from outside: .*; return the new value"):
            graph(sl.tensor(True), sl.tensor([1.0, 2.0]))

    def routed(x):  # the operand itself
        x[0] = 3.0
        return x

    with pytest.raises(RuntimeError, match="cond: a branch writes in place to a tensor from outside"):
        Calls(lambda p, x: sl.cond(p, routed, lambda x: x, (x,)))(sl.tensor(True), sl.tensor([1.0, 2.0]))
    # Its own values are its own.
    graph = Calls(lambda p, x: sl.cond(p, lambda x: (x * 2).add_(1), lambda x: sl.zeros(2).add_(x), (x,)))
    assert graph(sl.tensor(True), sl.tensor([1.0, 2.0])).numpy().tolist() == [3, 5]
    assert graph(sl.tensor(False), sl.tensor([1.0, 2.0])).numpy().tolist() == [1, 2]


def test_refusals():
    x = sl.tensor([1.0, 2.0])
    with pytest.raises(TypeError, match=r"cond: the predicate is .*float32 of shape \(2,\); must be bool, of one element"):
        sl.cond(x, lambda: 1, lambda: 2)
    with pytest.raises(TypeError, match="cond: the predicate is int; must be a bool or a bool tensor"):
        sl.cond(1, lambda: 1, lambda: 2)
    with pytest.raises(TypeError, match="cond: operands are Tensor; must be a tuple or a list"):
        sl.cond(True, lambda x: x, lambda x: x, x)
    with pytest.raises(TypeError, match="cond: got 3 and .*; both must be callable"):
        sl.cond(True, 3, lambda: 2)
    for other, message in ((lambda x: x[:1], r"cond: result 0 is .*float32 of shape \(2,\) in true_fn, .*float32 of shape \(1,\) in false_fn"),
                           (lambda x: x.long(), "cond: result 0 is .*float32 .* in true_fn, .*int64"),
                           (lambda x: (x,), "cond: the functions return different structures: .*; they must be equal")):
        with pytest.raises(TypeError, match=message):
            Calls(lambda p, x, other=other: sl.cond(p, lambda x: x, other, (x,)))(sl.tensor(True), x)
