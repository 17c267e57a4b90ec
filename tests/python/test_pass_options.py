"""Options of graph.config that switch passes and the order of kernels: plans change, results do not."""

import warnings

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from sluice import nn


class Infer(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        return self.net(x)


class Train(nn.Graph):
    def __init__(self, net, lr=0.1):
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=lr))

    def build(self, x):
        loss = (self.net(x) ** 2).mean()
        loss.backward()
        return loss


def ops(graph):
    return [kernel["op"] for kernel in graph.plan["kernels"]]


def padded(lib, value=0.0, pad=(1, 1, 2, 2)):
    return lib.Sequential(lib.Conv2d(3, 4, 3), lib.ConstantPad2d(pad, value), lib.Conv2d(4, 5, 5, padding=1))


def pair(make):
    torch.manual_seed(3)
    theirs = make(torch.nn)
    ours = make(nn)
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    return ours, theirs


def test_zeros_around_a_convolutions_input_are_its_padding():  # CFG-04
    ours, theirs = pair(padded)
    x = torch.randn(2, 3, 9, 8)
    graph, plain = Infer(ours), Infer(ours)
    graph.config.allow_fuse_pad_to_conv()
    plain.config.allow_fuse_pad_to_conv(False)
    y, expected = graph(to_sl(x)), plain(to_sl(x))
    assert "pad" in ops(plain) and "pad" not in ops(graph)
    assert graph.config.report()["allow_fuse_pad_to_conv"] == 1 and "allow_fuse_pad_to_conv" not in plain.config.report()
    assert_same(y, theirs(x).detach(), 1e-5)
    np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_it_is_so_in_training_too():  # CFG-04
    ours, theirs = pair(padded)
    graph = Train(ours)
    x = torch.randn(2, 3, 9, 8)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for _ in range(3):
        loss = graph(to_sl(x))
        optimizer.zero_grad()
        expected = (theirs(x) ** 2).mean()
        expected.backward()
        optimizer.step()
        assert_same(loss, expected.detach(), 1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same(a, b.detach(), 1e-5)
    assert graph.config.report()["fuse_pad"] == 2  # the pad, and the border of its gradient
    assert not {"pad", "slice"} & set(ops(graph))


@pytest.mark.parametrize("why", ["not zero", "more on one side", "read twice", "longer than a window"])
def test_pads_that_are_more_than_padding_stay(why):  # CFG-04
    pad = {"more on one side": (1, 2, 2, 2), "longer than a window": (4, 4, 4, 4)}.get(why, (1, 1, 2, 2))
    ours, theirs = pair(lambda lib: padded(lib, 1.0 if why == "not zero" else 0.0, pad))

    def twice(net, x):
        y = net[1](net[0](x))
        return net[2](y), y + 1

    x = torch.randn(2, 3, 9, 8)
    function = twice if why == "read twice" else lambda net, x: (net(x),)
    graph = Infer(ours)
    graph.build = lambda x: function(ours, x)
    graph.config.allow_fuse_pad_to_conv()
    for a, b in zip(graph(to_sl(x)), function(theirs, x), strict=True):
        assert_same(a, b.detach(), 1e-5)
    assert "pad" in ops(graph)
    with pytest.warns(UserWarning, match=r"allow_fuse_pad_to_conv\(\) has changed nothing: the graph has no such place"):
        assert graph.config.report()["allow_fuse_pad_to_conv"] == 0


class Affine(torch.nn.Module):
    """Products with rows added, as GPT-2's layers are written."""

    def __init__(self):
        super().__init__()
        self.w, self.v = torch.nn.Parameter(torch.randn(8, 12) * 0.3), torch.nn.Parameter(torch.randn(6, 12) * 0.3)
        self.b, self.c = torch.nn.Parameter(torch.randn(12)), torch.nn.Parameter(torch.randn(6))

    def forward(self, x):
        return affine(self, x)


def affine(net, x):
    return net.c + ((x @ net.w + net.b).relu() @ net.v.t())


class OurAffine(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v, self.b, self.c = (nn.Parameter(sl.zeros(*s)) for s in ((8, 12), (6, 12), (12,), (6,)))

    def forward(self, x):
        return affine(self, x)


@pytest.mark.parametrize("shape", [(5, 8), (1, 8)])
def test_a_product_a_row_and_an_activation_are_one_kernel(shape):
    torch.manual_seed(5)
    theirs, ours = Affine(), OurAffine()
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    x = torch.randn(*shape)
    graph, plain = Infer(ours), Infer(ours)
    for name in ("fuse_bias", "fuse_elementwise"):
        plain.config.disable_pass(name)
    assert_same(graph(to_sl(x)), theirs(x).detach(), 1e-6)
    assert_same(plain(to_sl(x)), theirs(x).detach(), 1e-6)
    assert ops(graph) == ["linear", "linear"] and ops(plain) == ["matmul", "add", "relu", "matmul", "add"]
    assert [k["attrs"]["activation"] for k in graph.plan["kernels"]] == ["relu", "none"]
    assert graph.config.report()["fuse_bias"] == 2


def test_a_product_of_more_dims_is_right_and_left_as_it_is():
    """It is traced with a reshape behind the product, which the pass does not look through."""
    torch.manual_seed(5)
    theirs, ours = Affine(), OurAffine()
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    x = torch.randn(2, 3, 8)
    graph = Infer(ours)
    assert_same(graph(to_sl(x)), theirs(x).detach(), 1e-6)
    assert graph.config.report()["fuse_bias"] == 0


def test_it_is_so_in_training_and_addmm(same_products):
    torch.manual_seed(6)
    theirs, ours = Affine(), OurAffine()
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    x = torch.randn(5, 8)
    graph = Train(ours)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for _ in range(3):
        loss = graph(to_sl(x))
        optimizer.zero_grad()
        expected = (theirs(x) ** 2).mean()
        expected.backward()
        optimizer.step()
        assert_same(loss, expected.detach(), 1e-6)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same(a, b.detach(), 1e-5)
    assert graph.config.report()["fuse_bias"] == 2 and "linear" in ops(graph)
    add = Infer(ours)
    add.build = lambda x: sl.addmm(ours.b, x, ours.w)
    same_products(add(to_sl(x)).numpy(), sl.addmm(ours.b, to_sl(x), ours.w).detach().numpy())
    assert ops(add) == ["linear"]


ACTIVATIONS = {"gelu": lambda f, x: f.gelu(x), "gelu_tanh": lambda f, x: f.gelu(x, approximate="tanh"), "tanh": lambda f, x: f.tanh(x),
               "sigmoid": lambda f, x: f.sigmoid(x), "silu": lambda f, x: f.silu(x)}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_computed_by_linear_where_it_is_asked_for(name):  # MF-04
    torch.manual_seed(7)
    theirs, ours = torch.nn.Linear(24, 40), nn.Linear(24, 40)
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    x = torch.randn(30, 24) * 2
    expected = ACTIVATIONS[name](torch.nn.functional, theirs(x)).detach()
    graphs = [Infer(ours), Infer(ours)]
    for graph in graphs:
        graph.build = lambda x: ACTIVATIONS[name](nn.functional, ours(x))
    graphs[1].config.enable_fused_activations()
    for graph in graphs:
        np.testing.assert_allclose(graph(to_sl(x)).numpy(), expected.numpy(), rtol=2e-6, atol=1e-6)
    plain, fused = graphs
    assert ops(plain) == ["linear", name.removesuffix("_tanh")] and ops(fused) == ["linear"]
    assert fused.plan["kernels"][0]["attrs"]["activation"] == name
    assert fused.config.report()["enable_fused_activations"] == 1 and plain.config.report()["fuse_activation"] == 0


def test_in_training_activations_stay_where_gradients_read_the_product():
    graph = Train(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)))
    graph.config.enable_fused_activations()
    graph(sl.randn(4, 8))
    assert "gelu" in ops(graph)
    with pytest.warns(UserWarning, match=r"enable_fused_activations\(\) has changed nothing"):
        graph.config.report()


class Deep(nn.Module):
    def __init__(self, lib):
        super().__init__()
        self.layers = lib.Sequential(*[lib.Linear(64, 64) if i % 2 == 0 else lib.Tanh() for i in range(12)])

    def forward(self, x):
        return self.layers(x)


def test_an_update_runs_as_soon_as_its_gradient_is_there():  # TTE-11, CFG-19
    plans, losses = {}, {}
    x = sl.randn(4, 64)
    for mode in ("MemoryFirst", "Disable"):
        sl.manual_seed(0)
        graph = Train(Deep(nn))
        graph.config.enable_straighten_algorithm(mode)
        losses[mode] = [float(graph(x)) for _ in range(5)] + [p.sum().item() for p in graph.net.parameters()]
        roles = [k.get("role") for k in graph.plan["kernels"] if k.get("role") in ("backward", "update")]
        plans[mode] = (graph.memory(), roles)
    assert losses["MemoryFirst"] == losses["Disable"]
    (little, early), (much, late) = plans["MemoryFirst"], plans["Disable"]
    assert "backward" not in late[late.index("update"):]  # as written: the optimizer steps after the backward pass
    first = early.index("update")
    assert early[first:].count("backward") > 10
    gradients = 6 * (64 * 64 + 64) * 4
    assert much["temp"] >= gradients and little["temp"] < gradients // 2, (little, much)
    assert sorted(early) == sorted(late)



def net_of_everything(lib):
    return lib.Sequential(lib.Conv2d(3, 8, 3), lib.BatchNorm2d(8), lib.ReLU(), lib.Flatten(), lib.Linear(8 * 16, 16), lib.ReLU(),
                          lib.Linear(16, 4))


def test_levels_are_those_of_onnx_runtime():  # ORT-01
    ours, theirs = pair(net_of_everything)
    ours, theirs = ours.eval(), theirs.eval()
    x = torch.randn(2, 3, 6, 6)
    kernels, packed, results = {}, {}, {}
    for level in range(4):
        graph = Infer(ours)
        graph.build = lambda x: ours(x * 1)
        graph.config.set_optimization_level(level)
        results[level] = graph(to_sl(x)).numpy()
        kernels[level], packed[level] = ops(graph), graph.plan.get("packed", [])
        np.testing.assert_allclose(results[level], theirs(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert "mul" in kernels[0] and "mul" not in kernels[1]
    assert kernels[1].count("relu") == 2 and "batch_norm_infer" in kernels[1]
    assert "relu" not in kernels[2] and "batch_norm_infer" not in kernels[2]
    assert kernels[2] == kernels[3]
    assert not packed[1] and all("derived" in copy for copy in packed[2]) and len(packed[2]) <= len(packed[3])  # folded norms alone
    for level in (-1, 4, "all"):
        with pytest.raises(ValueError, match=rf"set_optimization_level: got {level!r}; must be 0, 1, 2 or 3"):
            nn.Graph().config.set_optimization_level(level)


def test_a_saved_plan_is_loaded_without_a_pass(tmp_path, monkeypatch):  # ORT-01
    ours = net_of_everything(nn).eval()
    graph = Infer(ours)
    x = sl.randn(2, 3, 6, 6)
    expected = graph(x).numpy()
    sl.save(graph, tmp_path / "bundle")
    monkeypatch.setenv("SLUICE_DUMP_IR", str(tmp_path / "ir"))
    loaded = sl.load_graph(tmp_path / "bundle")
    assert loaded(x).numpy().tobytes() == expected.tobytes()
    assert not (tmp_path / "ir").exists()  # every pass that runs writes what it sees
    Infer(ours)(x)
    assert any("simplify" in file.name for file in (tmp_path / "ir").iterdir())


def test_identities_vanish():  # CFG-25
    class Build(nn.Graph):
        def build(self, x, y):
            a = x.to(sl.float32).contiguous().expand(4, 4).reshape(4, 4).view(4, 4)  # none of them does anything
            b = a.transpose(0, 1).transpose(0, 1) * 1
            return (b.flatten().reshape(2, 8).reshape(4, 4) - 0) + y

    graph, plain = Build(), Build()
    plain.config.set_optimization_level(0)
    x, y = sl.randn(4, 4), sl.randn(4, 4)
    got, expected = graph(x, y), plain(x, y)
    assert ops(graph) == ["add"]
    assert sorted(ops(plain))[0] == "add" and {"mul", "sub"} <= set(ops(plain))
    assert got.numpy().tobytes() == expected.numpy().tobytes() == (x + y).numpy().tobytes()


def test_nothing_warns_when_nothing_was_asked_for():  # CFG-28
    graph = Infer(nn.Linear(2, 2))
    graph(sl.ones(1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = graph.config.report()
    assert set(report) == set(sl._C.pass_names())


def test_every_option_of_oneflow_is_there_or_says_what_to_use():
    from sluice._names.oneflow_names import NAMES

    config = nn.Graph().config
    for name in NAMES["oneflow.nn.Graph.config"].split():
        if hasattr(type(config), name):
            continue
        with pytest.raises(AttributeError, match=rf"graph.config has no option '{name}': Sluice leaves out .*; \S+"):
            getattr(config, name)


def test_an_op_without_a_kernel_needs_the_pass_that_decomposes_it():
    class Clamp(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.disable_pass("decompose")

        def build(self, x):
            return x.clamp(-1, 1)

    with pytest.raises(NotImplementedError, match=r'op clamp: no kernel on device cpu:0; place it on .*, or leave the pass "decompose" on'):
        Clamp()(sl.ones(3))
