"""GraphModule: the code of a graph as a module, with values and gradients of the module that was traced, eagerly and compiled."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
import torch.fx

import sluice as sl

FX = {"sluice": (sl, sl.fx), "torch": (torch, torch.fx)}


@pytest.fixture(params=FX)
def both(request):
    return FX[request.param]


def net(lib, bias=True):
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = lib.nn.Conv2d(2, 4, 3, bias=bias), lib.nn.BatchNorm2d(4)
            self.rest = lib.nn.Sequential(lib.nn.Linear(4, 6), lib.nn.GELU(), lib.nn.Dropout(0.0), lib.nn.Linear(6, 3))
            self.scale = lib.nn.Parameter(lib.full((4,), 1.5))
            self.register_buffer("shift", lib.full((4,), 0.25))
            self.table = [lib.ones(3)]

        def forward(self, x):
            y = lib.nn.functional.relu(self.norm(self.conv(x)))
            y = lib.nn.functional.dropout(y.mean((2, 3)), 0.0, self.training) * self.scale + self.shift
            return lib.nn.functional.log_softmax(self.rest(y), dim=-1) * self.table[0]

    return Net()


def pair():
    """The same net on Sluice and on torch, and an input."""
    theirs, ours = net(torch), net(sl)
    ours.load_state_dict({name: sl.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    return ours, theirs, np.random.default_rng(0).random((5, 2, 6, 6), np.float32)


def gradients(module, x):
    (module(x)[:, 0]).sum().backward()
    return {name: p.grad.numpy() for name, p in module.named_parameters()}


@pytest.mark.parametrize("way", ["eager", "compile", "graph"])
def test_values_and_gradients_are_torchs(way):
    ours, theirs, x = pair()
    traced = sl.fx.symbolic_trace(ours)
    expected, wanted = theirs(torch.tensor(x)).detach().numpy(), gradients(theirs, torch.tensor(x))
    called = {"eager": lambda: traced, "compile": lambda: sl.compile(traced), "graph": lambda: sl.nn.Graph.trace(traced)}[way]()
    np.testing.assert_allclose(called(sl.tensor(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    if way != "graph":
        found = gradients(called, sl.tensor(x))
        found = {name.removeprefix("_orig_mod."): value for name, value in found.items()}
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_graph_trains_it():
    ours, theirs, x = pair()
    traced = sl.fx.symbolic_trace(ours)

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = traced
            self.add_optimizer(sl.optim.SGD(traced.parameters(), lr=0.1))

        def build(self, x):
            loss = self.net(x).square().sum()
            loss.backward()
            return loss

    step, sgd = Train(), torch.optim.SGD(theirs.parameters(), lr=0.1)
    for _ in range(3):
        sgd.zero_grad()
        loss = theirs(torch.tensor(x)).square().sum()
        loss.backward()
        sgd.step()
        assert step(sl.tensor(x)).item() == pytest.approx(loss.item(), rel=1e-3)
    assert ours.scale is traced.scale  # parameters are shared, as they are in torch


def test_it_has_what_the_graph_names(both):
    lib, fx = both
    root = net(lib)
    root.unused = lib.nn.Linear(1, 1)
    traced = fx.symbolic_trace(root.eval())
    assert sorted(traced.state_dict()) == sorted([*(n for n in root.state_dict() if "unused" not in n), "_tensor_constant0"])
    assert not traced.training and type(traced).__name__ == "Net" and isinstance(traced, fx.GraphModule)
    assert [n for n, _ in traced.named_children()] == ["conv", "norm", "rest"]
    assert traced.graph.owning_module is traced and "torch.nn.functional.log_softmax(" in traced.code


def test_changes_count_when_it_is_compiled_anew(both):
    lib, fx = both
    traced = fx.symbolic_trace(lambda x: lib.relu(x) + 1)
    for node in traced.graph.nodes:
        if node.op == "call_function" and node.target is lib.relu:
            node.target = lib.neg
    assert traced(lib.ones(1)).item() == 2
    traced.recompile()
    assert traced(lib.ones(1)).item() == 0 and "torch.neg(x)" in traced.code
    other = fx.symbolic_trace(lambda x: x * 5)
    traced.graph = other.graph
    assert traced(lib.ones(1)).item() == 5


def test_compiled_calls_see_changes():
    traced = sl.fx.symbolic_trace(lambda x: sl.relu(x) + 1)
    calls = [sl.compile(traced), sl.nn.Graph.trace(traced)]
    assert [f(sl.ones(1)).item() for f in calls] == [2, 2]
    next(n for n in traced.graph.nodes if n.target is sl.relu).target = sl.neg
    traced.recompile()
    assert [f(sl.ones(1)).item() for f in calls] == [0, 0]


def test_modules_of_one_class_have_codes_of_their_own(both):
    lib, fx = both
    one, two = (fx.symbolic_trace(f) for f in (lambda x: x + 1, lambda x: x + 2))
    assert (one(lib.zeros(1)).item(), two(lib.zeros(1)).item()) == (1, 2)


def test_submodules_come_and_go(both):
    lib, fx = both
    traced = fx.symbolic_trace(net(lib))
    assert traced.add_submodule("extra.deep", lib.nn.Linear(3, 3)) and isinstance(traced.extra.deep, lib.nn.Linear)
    output = list(traced.graph.nodes)[-1]
    with traced.graph.inserting_before(output):
        output.args = (traced.graph.call_module("extra.deep", output.args),)
    traced.add_submodule("unused", lib.nn.ReLU())
    traced.delete_all_unused_submodules()
    assert not hasattr(traced, "unused") and hasattr(traced.extra, "deep") and hasattr(traced.rest, "3")
    traced.recompile()
    assert traced(lib.ones(2, 2, 5, 5)).shape == (2, 3)
    assert traced.delete_submodule("extra.deep") and not traced.delete_submodule("extra.deep")


def test_a_dict_is_a_root(both):
    lib, fx = both
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(lib.add, (graph.call_module("a.b", (x,)), graph.get_attr("w"))))
    made = fx.GraphModule({"a.b": lib.nn.ReLU(), "w": lib.ones(2)}, graph)
    assert made(lib.tensor([-1.0, 2.0])).tolist() == [1, 3] and list(made.state_dict()) == ["w"]
    with pytest.raises(RuntimeError, match="w"):
        fx.GraphModule({"a.b": lib.nn.ReLU()}, graph)


def test_copies_stand_alone(both):
    lib, fx = both
    traced = fx.symbolic_trace(net(lib))
    traced.meta["kept"] = 1
    traced.conv.register_forward_hook(lambda module, args, output: output * 0)
    copied = copy.deepcopy(traced)
    assert copied.code == traced.code and copied.meta["kept"] == 1
    assert copied.scale is not traced.scale and copied.conv is not traced.conv and copied.graph is not traced.graph
    x = lib.rand(2, 2, 5, 5)
    assert lib.equal(copied(x), traced(x))
    next(n for n in copied.graph.nodes if n.name == "mul").args = (1, 1)
    copied.graph.eliminate_dead_code()
    copied.recompile()
    assert copied.code != traced.code and len(copied.graph.nodes) != len(traced.graph.nodes)


class Pickled(sl.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.w = sl.nn.Linear(2, 3), sl.nn.Parameter(sl.ones(3))

    def forward(self, x):
        return {"y": sl.nn.functional.gelu(self.linear(x)) * self.w, "n": x.shape[0]}


def test_it_is_pickled_and_saved():
    traced = sl.fx.symbolic_trace(Pickled())
    x, file = sl.rand(4, 2), io.BytesIO()
    sl.save(traced, file)
    file.seek(0)
    for again in (pickle.loads(pickle.dumps(traced)), sl.load(file, weights_only=False)):
        assert again.code == traced.code and type(again).__name__ == "Pickled" and again.graph.owning_module is again
        assert sl.equal(again(x)["y"], traced(x)["y"]) and again(x)["n"] == 4
        assert again.linear.weight is not traced.linear.weight
    local = sl.fx.symbolic_trace(lambda x: (lambda y: y)(x))
    assert pickle.loads(pickle.dumps(local))(3) == 3


def test_an_error_shows_the_line_of_the_code():
    import traceback

    traced = sl.fx.symbolic_trace(lambda x: sl.matmul(x, x))
    with pytest.raises(sl.errors.Error if hasattr(sl.errors, "Error") else Exception) as caught:
        traced(sl.ones(2, 3))
    text = "".join(traceback.format_exception(caught.value))
    assert "matmul = torch.matmul(x, x)" in text


def test_the_module_is_printed(capsys):
    traced = sl.fx.symbolic_trace(net(sl))
    traced.print_readable()
    assert "class Net(torch.nn.Module):\n    def forward(self, x):" in capsys.readouterr().out
    assert "(conv): Conv2d(2, 4" in str(traced) and traced.code in str(traced)


def test_it_is_traced_again(both):
    lib, fx = both
    traced = fx.symbolic_trace(net(lib))
    assert fx.symbolic_trace(traced).code == traced.code
