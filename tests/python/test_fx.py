"""sluice.fx traces as torch.fx does: the same nodes, names, targets and code for the same programs."""

import functools
import math
import threading

import numpy as np
import pytest
import torch

import sluice as sl


def program(build):
    """build(lib) on both: what it makes of Sluice, and of torch."""
    return build(sl), build(torch)


def rows(graph):
    """For each node its kind, name, target as text, names of its inputs and users."""
    return [(n.op, n.name, n.target if isinstance(n.target, str) else n.target.__name__, [a.name for a in n.all_input_nodes],
             [u.name for u in n.users]) for n in graph.nodes]


def traced(lib, root, **options):
    import torch.fx

    return (sl.fx if lib is sl else torch.fx).symbolic_trace(root, **options)


def of_both(build, **options):
    return [traced(lib, build(lib), **options) for lib in (sl, torch)]


def block(lib):
    class Block(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = lib.nn.Conv2d(3, 4, 3, padding=1), lib.nn.BatchNorm2d(4)
            self.act = lib.nn.ReLU(inplace=True)
            self.down = lib.nn.Sequential(lib.nn.Conv2d(3, 4, 1), lib.nn.BatchNorm2d(4))
            self.scale = lib.nn.Parameter(lib.ones(4, 1, 1))
            self.register_buffer("shift", lib.zeros(4, 1, 1))
            self.heads = lib.nn.ModuleDict({"Out1": lib.nn.Linear(4, 2), "out_2": lib.nn.Linear(4, 3)})

        def forward(self, x, factor=2):
            y = self.act(self.bn1(self.conv1(x)))
            y += self.down(x)
            y = self.act(y) * self.scale * factor - self.shift
            n, c, *_ = y.shape[0], y.size(1)
            pooled = lib.flatten(y.mean(dim=(2, 3), keepdim=True), 1)
            first, second = (self.heads[name](pooled) for name in ("Out1", "out_2"))
            return {"first": first, "rest": [second.view(n, -1), (c, -second, 1 - first)]}

    return Block()


def functions(lib):
    F = lib.nn.functional

    def f(x, y):
        t = lib.cat([x, y.unsqueeze(0).expand(x.shape[0], -1)], dim=0)
        t = lib.relu(t) + lib.ones(3)
        t = lib.ones(3) * t @ lib.zeros(3, 3)
        a, b = lib.split(F.softmax(t, dim=-1), 2)
        a = F.gelu(a[:, 0:2][..., None].transpose(-1, -2).contiguous())
        b = abs(b.to(lib.float32).to(x.device)) ** 2 // 3 % 2 > 0.5
        c = F.layer_norm(t, (3,)).sum(-1)
        d = lib.where(c > 0, c, lib.zeros(1)).masked_fill(c == 1, float("inf"))
        return a, ~b, d, 2 ** c, math.sqrt(x.size(1)), F.linear(x, x), lib.stack((c, d), 0), x.T, y.type(lib.float64)

    return f


PROGRAMS = {
    "block": block, "functions": functions,
    "nothing": lambda lib: lambda x: x,
    "same names": lambda lib: lambda input, relu: lib.relu(lib.relu(relu)).relu() + input,
    "builtins": lambda lib: lambda max, x_1, x: max.sum().max() + x.sum() + x_1,
    "nest": lambda lib: lambda x: {"a": (x, [x + 1, None]), "b": slice(x, None, 2)},
    "in place": lambda lib: lambda x: x.add_(1).mul_(2),
    "attributes": lambda lib: lambda x: (x.shape[0], x.dtype, x.device.type, x.ndim),
    "defaults": lambda lib: lambda x, k=3, *, flag=None: x * k,
    "subscripts": lambda lib: lambda x: (lib.ones(4)[x], lib.ones(3)[1:], lib.ones(2)[[0, 1]], x[x > 0]),
    "stars": lambda lib: lambda x, *rest, **named: (x, rest[0], named["y"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nodes_and_code_are_torchs(name):
    ours, theirs = of_both(PROGRAMS[name])
    assert rows(ours.graph) == rows(theirs.graph)
    plain = [gm.code.split("def ", 1)[1].replace("torch.Tensor", "Tensor") for gm in (ours, theirs)]
    if name not in ("functions",):  # torch writes the defaults of its functions out
        assert plain[0] == plain[1]
    ours.graph.lint()


def test_the_code_of_functions_runs():
    ours, theirs = of_both(functions)
    x, y = torch.rand(4, 3), torch.rand(3)
    for got, expected in zip(ours(sl.tensor(x.numpy()), sl.tensor(y.numpy())), theirs(x, y)):
        if isinstance(expected, torch.Tensor):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
        else:
            assert got == expected


def test_a_tensor_is_cut_by_a_traced_length():  # where torch has an error
    traced = sl.fx.symbolic_trace(lambda x: x + sl.arange(5.0)[: x.shape[0]])
    assert traced(sl.ones(3)).tolist() == [1, 2, 3] and traced(sl.ones(1)).tolist() == [1]


@pytest.mark.parametrize("options", [{"factor": 3}, {"factor": 2.5}, {"factor": None}], ids=str)
def test_concrete_arguments_are_asserted(options):
    def build(lib):
        class Net(lib.nn.Module):
            def forward(self, x, factor=3):
                return x if factor is None else x * factor

        return Net()

    ours, theirs = of_both(build, concrete_args=options)
    assert rows(ours.graph) == rows(theirs.graph)
    x = sl.ones(2)
    value = options["factor"]
    assert ours(x, value).tolist() == [value or 1, value or 1]
    with pytest.raises(AssertionError, match=f"factor has been specialized to have value {value} but got another value"):
        ours(x, 7)
    with pytest.raises(ValueError, match="concrete_args: 'y'; must be among the parameters, which are x"):
        sl.fx.symbolic_trace(lambda x: x, {"y": 1})
    with pytest.raises(NotImplementedError, match="concrete_args: x: of list; must be a number, text or None"):
        sl.fx.symbolic_trace(lambda x: x, {"x": [1]})


@pytest.mark.parametrize("f", [lambda x: 1 if x > 0 else 2, lambda x: [i for i in x], eval("lambda x: len(x)", {}), lambda x: 3 in x,
                               lambda x: x and 1, lambda x: print(*x)], ids=["if", "for", "len", "in", "and", "star"])
def test_what_cannot_be_traced_is_torchs_error(f):
    import torch.fx

    with pytest.raises(Exception) as theirs:
        torch.fx.symbolic_trace(f)
    with pytest.raises(Exception) as ours:
        sl.fx.symbolic_trace(f)
    assert type(ours.value).__name__ == type(theirs.value).__name__
    assert str(ours.value)[:60] == str(theirs.value)[:60]


def test_what_a_node_cannot_hold_says_so():
    with pytest.raises(NotImplementedError, match="argument of type: <class 'object'>; must be a tensor, a number"):
        sl.fx.symbolic_trace(lambda x: x.foo(object()))
    with pytest.raises(TypeError, match="root: 3; must be a Module or a function of Python"):
        sl.fx.Tracer().trace(3)
    with pytest.raises(NameError, match="module is not installed as a submodule"):
        sl.fx.symbolic_trace(lambda x: sl.nn.ReLU()(x))
    with pytest.raises(RuntimeError, match="a dict with a traced value among its keys"):
        sl.fx.symbolic_trace(lambda x: x.foo({x: 1}))


def test_all_is_as_before_when_a_trace_fails():
    before = (sl.nn.functional.dropout, sl.nn.Module.__getattr__, sl.zeros, math.floor, sl.Tensor.__getitem__)

    class Net(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = sl.nn.Parameter(sl.ones(2))

        def forward(self, x):
            assert sl.nn.functional.dropout is not before[0]
            raise KeyError("broken")

    net = Net()
    with pytest.raises(KeyError, match="broken"):
        sl.fx.symbolic_trace(net)
    assert before == (sl.nn.functional.dropout, sl.nn.Module.__getattr__, sl.zeros, math.floor, sl.Tensor.__getitem__)
    assert isinstance(net.weight, sl.nn.Parameter) and sl.nn.ReLU()(sl.ones(1)).item() == 1


def test_a_tracer_says_what_is_a_leaf():
    def build(lib):
        class Inner(lib.nn.Module):
            def forward(self, x):
                return x if x.sum() > 0 else -x  # cannot be traced

        class Net(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.linear = Inner(), lib.nn.Linear(2, 2)

            def forward(self, x):
                return self.linear(self.inner(x))

        return Net(), Inner

    found = []
    for lib, fx in ((sl, sl.fx), (torch, torch.fx)):
        net, inner = build(lib)
        paths = []

        class Mine(fx.Tracer):
            def is_leaf_module(self, m, module_qualified_name):
                paths.append(module_qualified_name)
                return isinstance(m, inner) or super().is_leaf_module(m, module_qualified_name)

        graph = Mine().trace(net)
        stacks = [list(n.meta["nn_module_stack"]) for n in graph.nodes if n.op == "call_module"]
        found.append((rows(graph), paths, graph._tracer_cls is Mine, stacks))
    assert found[0] == found[1]


def test_shapes_of_parameters_can_be_numbers():
    class Net(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = sl.nn.Parameter(sl.ones(3, 2))

        def forward(self, x):
            return x * 2 if self.weight.shape[0] > 2 and self.weight.dim() == 2 else x

    tracer = sl.fx.Tracer(param_shapes_constant=True)
    assert [n.name for n in tracer.trace(Net()).nodes] == ["x", "weight", "mul", "output"]
    with pytest.raises(sl.fx.proxy.TraceError):
        sl.fx.symbolic_trace(Net())


@functools.lru_cache
def halved(n):
    return int(n) // 2


def chosen(x, n):
    return x[:n] if n > 1 else x


sl.fx.wrap("chosen")
sl.fx.wrap("halved")
sl.fx.wrap("len")


def test_wrapped_functions_are_recorded():
    traced = sl.fx.symbolic_trace(lambda x: chosen(x, halved(len(x))))
    assert [(n.op, n.name) for n in traced.graph.nodes][1:-1] == [("call_function", name) for name in ("len_1", "halved", "chosen")]
    assert traced(sl.arange(6)).tolist() == [0, 1, 2]
    again = sl.fx.symbolic_trace(traced)  # the generated code is traced as the program was
    assert rows(again.graph) == rows(traced.graph) and again(sl.arange(4)).tolist() == [0, 1]
    assert chosen(sl.arange(3), 2).tolist() == [0, 1]
    with pytest.raises(NotImplementedError, match="wrap must be called at the top level of a module"):
        sl.fx.wrap("chosen")
    with pytest.raises(RuntimeError, match="Unsupported type for global function"):
        sl.fx.wrap(3)


def test_functions_can_be_wrapped_for_one_trace():
    helper = globals()["helper_of_one_trace"] = lambda x: x * 2 if x.sum() > 0 else x
    try:
        helper.__name__ = "helper"
        tracer = sl.fx.Tracer(autowrap_functions=(helper,))
        graph = tracer.trace(lambda x: helper_of_one_trace(x) + 1)  # noqa: F821
        assert [n.name for n in graph.nodes] == ["x", "helper", "add", "output"]
        assert sl.fx.GraphModule(tracer.root, graph)(sl.ones(1)).item() == 3
    finally:
        del globals()["helper_of_one_trace"]


def test_other_threads_compute_while_one_traces():
    results = []

    class Net(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.linear = sl.nn.Parameter(sl.ones(2)), sl.nn.Linear(2, 2)

        def plain(self):
            results.extend([self.linear(sl.ones(1, 2)) * self.weight, sl.nn.functional.dropout(sl.zeros(2)), sl.zeros(3)])

        def forward(self, x):
            thread = threading.Thread(target=self.plain)
            thread.start()
            thread.join()
            return self.linear(x) * self.weight

    traced = sl.fx.symbolic_trace(Net())
    assert [n.name for n in traced.graph.nodes] == ["x", "linear", "weight", "mul", "output"]
    assert len(results) == 3 and all(type(value) is sl.Tensor for value in results)


def test_a_trace_within_a_trace():
    def inner(x):
        return sl.nn.functional.dropout(x, 0.5) + 1

    def outer(x):
        return sl.nn.functional.dropout(x, 0.0) * len(sl.fx.symbolic_trace(inner).graph.nodes)

    traced = sl.fx.symbolic_trace(outer)
    assert [n.name for n in traced.graph.nodes] == ["x", "dropout", "mul", "output"] and traced(sl.ones(1)).item() == 4
