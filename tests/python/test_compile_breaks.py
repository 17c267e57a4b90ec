"""sluice.compile: what cannot be traced is right all the same, is told of, and is an error with fullgraph=True."""

import inspect
import random
import re
import threading
import warnings

import numpy
import pytest

import sluice as sl
from sluice import nn

COUNT = 0


def line_of(function, text):
    lines, start = inspect.getsourcelines(function)
    return start + next(i for i, line in enumerate(lines) if text in line)


def prints(x):
    print("seen")
    return x + 1


def prints_tensor(x):
    print(x.sum())
    return x + 1


def item(x):
    return x * x.sum().item()


def decides(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def calls_numpy(x):
    return sl.from_numpy(numpy.sin(x.detach().numpy()))


def lists(x):
    return x * x.tolist()[0]


def mask(x):
    return x[x > 0]


def indexes(x):
    return [10, 20, 30][x.abs().sum().long() % 3] * x


def draws(x):
    return x * random.random()


def counts(x):
    global COUNT
    COUNT += 1
    return x * COUNT


def opens(x):
    with open(__file__) as file:
        return x * len(file.readline())


def returns_object(x):
    return threading.Event()


def returns_view(x):
    return x.view(-1)


def formats(x):
    return x, f"{x.sum().item():.2f}"


BREAKS = [(prints, "print(", "print() reaches the host"), (prints_tensor, "print(", "print() reaches the host"),
          (item, ".item()", "reads the value of a tensor"), (decides, "if x", "reads the value of a tensor"),
          (calls_numpy, "numpy.sin", "reads the value of a tensor"), (lists, "tolist", "reads the value of a tensor"),
          (mask, "x > 0", "reads the value of a tensor"), (indexes, "10, 20", "reads the value of a tensor"),
          (opens, "open(", "open() reaches the host"),
          (draws, None, "it draws random numbers from Python's random or numpy.random"), (counts, None, "it changes COUNT"),
          (returns_object, None, "returns threading.Event"), (returns_view, None, "returns a view of argument 0"),
          (formats, ".item()", "reads the value of a tensor")]


@pytest.mark.parametrize("function, text, reason", BREAKS, ids=[b[0].__name__ for b in BREAKS])
def test_a_break_is_right_and_told_once(function, text, reason):
    global COUNT
    compiled, before = sl.compile(function), COUNT
    x = sl.tensor([1.0, -2.0, 3.0])
    state = random.getstate()
    expected = [function(x) for _ in range(3)]
    random.setstate(state)
    COUNT = before
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = [compiled(x) for _ in range(3)]
    for m, e in zip(made, expected):
        assert type(m) is type(e)
        if isinstance(m, tuple):
            assert m[1] == e[1]
        elif isinstance(m, sl.Tensor):
            assert sl.equal(m, e)
    stats = sl.compile.stats(compiled)
    assert stats["compiles"] == 0 and stats["breaks"] == 1 and stats["eager_calls"] == 3
    place = f"{__file__}:{line_of(function, text)}" if text else ""
    assert len(caught) <= 1 and all(w.filename == __file__ for w in caught)
    with pytest.raises(RuntimeError, match="compile: fullgraph=True: ") as error:
        sl.compile(function, fullgraph=True)(x)
    assert place in str(error.value) and reason in str(error.value)
    assert "take it out of the function, or leave out fullgraph" in str(error.value)


def test_results_that_share_memory_with_arguments_do_so():
    compiled, x = sl.compile(lambda x: (x, x[1:])), sl.zeros(3)
    with pytest.warns(RuntimeWarning, match="returns a view of argument 0; return a clone"):
        same, view = compiled(x)
    assert same is x
    view += 1
    assert x.tolist() == [0, 1, 1]


def test_one_break_is_explained():
    class Prints(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            x = self.a(x).relu()
            print("between")
            return self.b(x)

    net = Prints()
    told = sl.compile.explain(net)(sl.ones(2, 4))
    assert told.break_count == 1 and told.graph_count == 2 and told.ops_per_graph == [["linear"], ["linear"]]
    assert told.break_reasons == [f"{__file__}:{line_of(Prints.forward, 'print(')}: print() reaches the host"]
    assert "Prints: 2 graph(s), 1 break(s), 2 op(s)" in str(told) and "guard: tensor 0 is float32(2, 4) on cpu:0" in str(told)
    assert told.out_guards and all(g["backward_ops"] for g in told.graphs)


def test_all_breaks_of_a_module_are_listed_and_its_children_compiled():
    class Three(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
            self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

        def forward(self, x):
            x = self.net(x)
            print("one")
            for layer in self.layers:
                x = layer(x)
            x = x * x.max().item()
            return x + float(numpy.asarray(x.detach()).max())

    net, x = Three(), sl.randn(2, 3, requires_grad=True)
    compiled = sl.compile(net)
    with pytest.warns(RuntimeWarning, match="has a graph break and runs eagerly, what it calls is compiled"):
        made = compiled(x)
    assert sl.allclose(made, net(x), atol=1e-6)
    (a,), (b,) = sl.autograd.grad(compiled(x).sum(), [x]), sl.autograd.grad(net(x).sum(), [x])
    assert sl.allclose(a, b, atol=1e-5)
    stats = sl.compile.stats(compiled)
    assert stats["compiles"] == 3 and stats["eager_calls"] == 2  # the two of Three; Sequential and both of the list are plans
    told = sl.compile.explain(net, x)
    lines = [int(re.match(r".*:(\d+): ", reason)[1]) for reason in told.break_reasons]
    assert lines == [line_of(Three.forward, text) for text in ("print(", ".item()", "numpy.asarray")] and told.graph_count == 3


def test_attributes_that_forward_changes_are_a_break():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.seen, self.inner = 0, [], nn.Linear(2, 2)
            self.register_buffer("mean", sl.zeros(()))

        def forward(self, x):
            self.calls += 1
            self.seen.append(self.calls)
            self.mean = 0.5 * self.mean + 0.5 * x.mean()
            return self.inner(x)

    net = sl.compile(Counts())
    with pytest.warns(RuntimeWarning, match="it changes Counts.*, which a plan would do once only"):
        for _ in range(3):
            net(sl.ones(1, 2))
    assert net.calls == 3 and net.seen == [1, 2, 3] and net.mean.item() == 0.875
    assert sl.compile.stats(net)["compiles"] == 1


def test_buffers_and_arguments_written_in_place():
    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", sl.zeros(2))

        def forward(self, x, out):
            self.total += x
            out.mul_(2)
            out[0] = -1
            return out + self.total

    net = sl.compile(Running(), fullgraph=True)
    out, twice = sl.ones(2), sl.ones(2)
    for n in range(1, 4):
        made = net(sl.ones(2), out)
        twice = sl.tensor([-1.0, twice[1].item() * 2])
        assert sl.equal(out, twice) and sl.equal(made, twice + n) and net.total.tolist() == [n, n]
    assert sl.compile.stats(net)["compiles"] == 1
    base = sl.ones(4)
    net(sl.zeros(2), base[1:3])
    assert base.tolist() == [1, -1, 2, 1]


def test_parameters_written_in_place():
    w = sl.ones(2, requires_grad=True)

    @sl.compile(fullgraph=True)
    def decay(x):
        with sl.no_grad():
            w.mul_(0.5)
        return x + w.detach()

    assert [decay(sl.zeros(2))[0].item() for _ in range(3)] == [0.5, 0.25, 0.125] and w.tolist() == [0.125, 0.125]


def test_what_the_code_raises_is_raised():
    def fails(x, flag):
        if flag:
            raise KeyError("mine")
        return x @ x

    for fullgraph in (False, True):
        compiled = sl.compile(fails, fullgraph=fullgraph)
        with pytest.raises(KeyError, match="mine"):
            compiled(sl.ones(2, 2), True)
        with pytest.raises((ValueError, RuntimeError), match="matmul"):
            compiled(sl.ones(2, 3), False)
        assert sl.equal(compiled(sl.ones(2, 2), False), sl.full((2, 2), 2.0))
        assert sl.compile.stats(compiled)["breaks"] == 0


def test_a_function_that_calls_backward_fills_grad():
    net = nn.Linear(2, 1)

    @sl.compile
    def step(x):
        loss = net(x).sum()
        loss.backward()
        return loss

    with pytest.warns(RuntimeWarning, match=r"calls backward\(\), whose .grad belongs to the caller; compile the step with"):
        step(sl.ones(1, 2))
    step(sl.ones(1, 2))
    assert net.weight.grad.tolist() == [[2, 2]]


def test_a_function_that_reads_grad_sees_it():
    w = sl.ones(2, requires_grad=True)

    @sl.compile
    def g(x):
        return x if w.grad is None else x + w.grad

    with pytest.warns(RuntimeWarning, match=r"test_compile_breaks.py:\d+: .grad is read"):
        assert g(sl.zeros(2)).tolist() == [0, 0]
    w.sum().backward()
    assert g(sl.zeros(2)).tolist() == [1, 1]


def test_hooks_of_parameters_run_once_per_pass():
    net, seen = nn.Linear(2, 2), []
    net.weight.register_hook(lambda grad: seen.append(1) or grad * 10)
    sl.compile(net)(sl.ones(1, 2)).sum().backward()
    assert len(seen) == 1 and net.weight.grad.tolist() == [[10, 10], [10, 10]]


def test_forward_hooks_are_in_the_graph():
    net = nn.Linear(2, 2)
    net.register_forward_hook(lambda module, args, result: result * 3)
    compiled, x = sl.compile(net, fullgraph=True), sl.ones(1, 2)
    assert sl.allclose(compiled(x), net(x))


def test_gradients_keep_torchs_rules():
    compiled = sl.compile(lambda x: x.exp() * 2)
    x = sl.ones(2, requires_grad=True)
    y = compiled(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert sl.allclose(x.grad, sl.full((2,), 4 * 2.718281828))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    with pytest.raises(NotImplementedError, match=r"compile: '<lambda>': gradients of gradients \(create_graph=True\) were asked for; "
                                                  "compiled code has first ones only: call it without compile, or with backend='eager'"):
        sl.autograd.grad(compiled(x).sum(), [x], create_graph=True)
    w = sl.ones(2, requires_grad=True)
    z = sl.compile(lambda x: x * w)(x)
    with sl.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation: a float32.* saved by compiled '<lambda>' is at version"):
        z.sum().backward()


def test_results_without_a_gradient_are_left_out():
    @sl.compile
    def both(x, y):
        return x.sin(), y.cos(), (x * y).sum()

    x, y = sl.ones(3, requires_grad=True), sl.ones(3, requires_grad=True)
    both(x, y)[0].sum().backward()
    assert x.grad is not None and y.grad is None
    both(x, y)[2].backward()
    assert sl.allclose(y.grad, sl.ones(3)) and sl.compile.stats(both)["backward_plans"] == 2


def test_disabled_functions_and_graph_breaks():
    @sl.compiler.disable(reason="it is mine")
    def inner(x):
        assert not sl.compiler.is_compiling()
        return x + 1

    def outer(x):
        return inner(x) * 2

    with pytest.warns(RuntimeWarning, match="inner is disabled by compiler.disable: it is mine"):
        assert sl.compile(outer)(sl.ones(1)).item() == 4
    with pytest.warns(RuntimeWarning, match=r"graph_break\(\) was called: here"):
        sl.compile(lambda x: sl._dynamo.graph_break("here") or x)(sl.ones(1))
    net = sl.compiler.disable(nn.Linear(2, 2))
    with pytest.warns(RuntimeWarning, match="forward is disabled"):
        sl.compile(nn.Sequential(net, nn.ReLU()))(sl.ones(1, 2))


def test_random_numbers_are_the_engines_or_eager():
    net, x = nn.Dropout(0.5), sl.ones(64, requires_grad=True)
    compiled = sl.compile(net, fullgraph=True)
    sl.manual_seed(0)
    first, second = compiled(x), compiled(x)
    assert not sl.equal(first, second) and set(first.tolist()) == {0.0, 2.0}
    (g,) = sl.autograd.grad(first.sum(), [x])
    assert sl.equal(g, first.detach())  # the mask of the forward pass
    sl.manual_seed(0)
    assert sl.equal(compiled(x), first)
    eager = sl.compile(net, options={"fallback_random": True})
    sl.manual_seed(0)
    expected = net(x)
    sl.manual_seed(0)
    with pytest.warns(RuntimeWarning, match="wants those of eager code"):
        assert sl.equal(eager(x), expected)


def test_arguments_that_no_plan_takes():
    class Slots:
        __slots__ = ("n",)

    compiled, slots = sl.compile(lambda x, s: x + s.n), Slots()
    with pytest.warns(RuntimeWarning, match="argument 1 is test_compile_breaks.*Slots; compiled calls take tensors, numbers"):
        for slots.n in (1, 2):
            assert compiled(sl.zeros(1), slots).item() == slots.n
    array = numpy.ones(1, "float32")
    with pytest.raises(RuntimeError, match="argument 1 is numpy.ndarray; compiled calls take tensors, numbers"):
        sl.compile(lambda x, a: x, fullgraph=True)(sl.zeros(1), array)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.filterwarnings("ignore:compile:RuntimeWarning")
def test_a_call_of_the_modules_own_class_runs_once(in_place):
    """`__call__` that a class overrides, of a module that is compiled in place, or by itself after a break."""
    class Doubled(sl.nn.Linear):
        def __call__(self, x):
            return super().__call__(2 * x)

    class Net(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Doubled(3, 2)

        def forward(self, x):
            return self.inner(x) if x.sum().item() > 0 else x

    net, x = Net(), sl.ones(4, 3)
    expected = net(x).detach().numpy()
    if in_place:
        net.inner.compile()
        call = net
    else:
        call = sl.compile(net)
    for _ in range(2):
        numpy.testing.assert_allclose(call(x).detach().numpy(), expected, rtol=1e-6)
