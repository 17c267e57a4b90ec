"""graph.config.enable_amp: a whole graph in mixed precision. The oracle is the same graph in a region of autocast."""

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from sluice import nn


class Train(nn.Graph):
    def __init__(self, net, lr=0.1):
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=lr))

    def build(self, x, y):
        out = self.net(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        return loss, out


class Infer(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        return self.net(x)


def net(lib=nn):
    return lib.Sequential(lib.Linear(8, 16), lib.ReLU(), lib.Linear(16, 16), lib.Tanh(), lib.Linear(16, 4))


def batch():
    torch.manual_seed(2)
    return torch.randn(32, 8), torch.randint(0, 4, (32,))


def casts(graph):
    return [k for k in graph.plan["kernels"] if k["op"] == "cast"]


@pytest.mark.parametrize("dtype", [sl.bfloat16, sl.float16])
def test_it_is_a_region_around_build(dtype):  # CFG-01
    model = net()
    x = to_sl(batch()[0])
    graph = Infer(model)
    graph.config.enable_amp(True, dtype=dtype)
    y = graph(x)
    with sl.autocast("cpu", dtype):
        assert y.dtype is dtype and y.tolist() == Infer(model)(x).tolist()
    assert repr(graph.config) == f"config(amp='{dtype.name}')"


def test_training_keeps_parameters_in_float32_and_learns(tmp_path):  # CFG-01
    theirs = net(torch.nn)
    ours = net()
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    graph = Train(ours)
    graph.config.enable_amp()
    x, y = batch()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for _ in range(20):
        loss, out = graph(to_sl(x), to_sl(y))
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            expected = torch.nn.functional.cross_entropy(theirs(x), y)
        expected.backward()
        optimizer.step()
        assert out.dtype is sl.bfloat16 and loss.dtype is sl.float32
        assert abs(float(loss) - float(expected)) < 0.02
    assert all(p.dtype is sl.float32 for p in ours.parameters())
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same(a, b.detach(), 0.02)
    products = [k for k in graph.plan["kernels"] if k["op"] in ("linear", "matmul")]
    assert products and casts(graph)
    updates = [k for k in graph.plan["kernels"] if k.get("role") == "update"]
    assert updates and not any("bfloat16" in str(v) for v in graph.plan["variables"])


def test_the_lists_decide(request):  # CFG-02
    lists = sl.amp.lists()
    assert "linear" in lists["lower"] and set(lists) == {"lower", "float32", "widest"}
    request.addfinalizer(lambda: lists["float32"].discard("tanh"))

    def dtypes():
        class Build(nn.Graph):
            def build(self, x):
                y = x @ x
                return y, y.tanh()

        graph = Build()
        graph.config.enable_amp()
        graph.config.disable_pass("fuse_elementwise")  # so that casts are kernels
        return [t.dtype for t in graph(sl.ones(4, 4))], len(casts(graph))

    assert dtypes()[0] == [sl.bfloat16, sl.bfloat16]
    before = dtypes()[1]
    lists["float32"].add("tanh")
    after = dtypes()
    assert after[0] == [sl.bfloat16, sl.float32] and after[1] == before + 1


def test_wrong_dtypes_are_refused():
    with pytest.raises(ValueError, match=r"enable_amp: dtype is sluice.float32; must be sluice.bfloat16 or sluice.float16"):
        nn.Graph().config.enable_amp(dtype=sl.float32)


def test_the_report_counts_rewrites():  # CFG-28
    class Build(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def build(self, x):
            y = self.net(x * 1)
            return y + (x * 1)

    graph = Build()
    with pytest.raises(RuntimeError, match="config.report: the graph has not been compiled"):
        graph.config.report()
    graph.config.enable_amp()
    graph(sl.ones(2, 4))
    report = graph.config.report()
    assert report["simplify"] == 2 and report["enable_amp"] >= 2 and set(report) - {"enable_amp"} == set(sl._C.pass_names())
    without = Build()
    without.config.disable_pass("simplify")
    without(sl.ones(2, 4))
    assert "simplify" not in without.config.report() and "enable_amp" not in without.config.report()


def test_an_option_that_did_nothing_warns():  # CFG-28
    class Add(nn.Graph):
        def build(self, x):
            return x + 1

    graph = Add()
    graph.config.enable_amp()
    graph(sl.ones(2))
    with pytest.warns(UserWarning, match="enable_amp.. has changed nothing"):
        assert graph.config.report()["enable_amp"] == 0
