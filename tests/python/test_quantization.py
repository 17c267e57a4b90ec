"""Post-training quantization of networks: calibration, packing, what is kept and what is refused."""

import re
import sys
import types

import numpy as np
import pytest

import sluice as sl
from sluice import _C, nn
from sluice.quantization import quantize
from sluice.quantization._observers import Percentile
from quantizing import VNNI


class Block(nn.Module):
    """Convolutions with batch norm, relu and an addition, pooling, and two products."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.norm2 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.fc, self.out = nn.Linear(16 * 16, 40), nn.Linear(40, 5)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 2)
        x = (self.norm2(self.second(x)) + x).relu()
        return self.out(self.fc(x.flatten(1)).relu())


def block():
    sl.manual_seed(0)
    net = Block()
    with sl.no_grad():
        for _ in range(3):
            net(sl.randn(8, 3, 8, 8))  # statistics that are not those of the beginning
    return net.eval()


def batches(n=4, size=8):
    sl.manual_seed(1)
    return [sl.randn(size, 3, 8, 8) for _ in range(n)]


def ops_of(graph):
    return re.findall(r" = (\w+)\(", graph._call.session.graph_text())


@pytest.mark.parametrize("mode", ["static", "qdq", "dynamic"])
@pytest.mark.parametrize("method", ["min_max", "percentile"])
def test_a_network_is_near_what_it_was(mode, method):
    net, data = block(), batches()
    small = quantize(net, data, mode=mode, method=method, percentile=99.9)
    assert [layer.name for layer in small.layers] == ["first", "second", "fc", "out"] and small.kept == []
    for x in batches(2):
        want = net(x).detach().numpy()
        got = small(x).numpy()
        assert np.abs(got - want).max() < 0.1 * np.abs(want).max()
        assert np.abs(got - want).max() > 0  # it was quantized indeed
    names = ops_of(small)
    if VNNI:
        assert names.count("int8_conv") == 2 and names.count("int8_linear") == 2
        assert not {"conv", "fused_conv", "linear"} & set(names)
    captured = small._call.session.captured().text()
    kernels = mode == "static" and VNNI
    assert ("int8_conv(" in captured) == kernels and ("dequantize(" in captured) != kernels
    if mode == "dynamic":
        assert small.layers[0].scale is None and "amax(" in captured


@pytest.mark.skipif(not VNNI, reason="the processor has no VNNI")
def test_weights_are_packed_once():
    small = quantize(block(), batches(1))
    weights = sum(np.prod(p.shape) for name, p in block().named_parameters() if p.ndim > 1)
    assert small._call.session.ledger()["packed"] >= weights


def test_static_and_qdq_are_the_same_kernels():
    net, data = block(), batches()
    one, other = (quantize(net, data, mode=mode) for mode in ("static", "qdq"))
    assert sorted(ops_of(one)) == sorted(ops_of(other))
    for x in batches(2):
        np.testing.assert_array_equal(one(x).numpy(), other(x).numpy())


def test_kernels_give_what_pairs_do_in_floats_up_to_a_step():
    """The pass off: the graph computes the same in floats, of values that were rounded."""
    net, data = block(), batches()
    small = quantize(net, data, mode="qdq")

    plain = _C.GraphSession(small._call.session.captured(), {"name": "plain", "disabled_passes": ["fuse_quantized"]}, {})
    assert "int8_conv" not in plain.graph_text()
    got, want = small(data[0]).numpy(), plain.call([data[0]], -1.0)[0].numpy()
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()  # a step of an operand here and there


def test_layers_can_be_kept():
    net, data = block(), batches(1)
    small = quantize(net, data, exclude=["f*"], keep_last=True)
    assert [layer.name for layer in small.layers] == ["second"] and small.kept == ["first", "fc", "out"]
    assert [layer.name for layer in quantize(net, data, keep_first=True).layers] == ["second", "fc", "out"]
    with pytest.raises(ValueError, match="exclude: no layer is named 'head'; there are \\['first', 'second', 'fc', 'out'\\]"):
        quantize(net, data, exclude=["head"])
    with pytest.raises(ValueError, match="nothing is left to quantize"):
        quantize(net, data, exclude=["*"])


def test_a_scale_for_each_channel_is_nearer_than_one_for_all():
    sl.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 16)).eval()
    with sl.no_grad():
        net[0].weight.mul_(sl.logspace(-2, 1, 16)[:, None])
    x = sl.randn(64, 32)
    errors = [np.abs((quantize(net, [x], per_channel=each)(x) - net(x)).detach().numpy()[:, 0]).max() for each in (True, False)]
    assert errors[0] < errors[1] / 3


def test_percentile_leaves_out_what_is_rare():
    random = np.random.default_rng(0)
    seen = Percentile(99.0)
    parts = [random.normal(size=3000) * (1 + k) for k in range(12)]
    for part in parts:
        seen.see(part)
    low, high = np.percentile(np.concatenate(parts), [0.5, 99.5])
    np.testing.assert_allclose(seen.range(), [low, high], rtol=0.02)
    net = nn.Sequential(nn.Linear(8, 8)).eval()
    x = sl.randn(512, 8)
    x[0, 0] = 1000.0
    scales = [quantize(net, [x], method=method, percentile=99.5).layers[0].scale for method in ("min_max", "percentile")]
    assert scales[0] > 3.9 and scales[1] < 0.1


def test_calibration_has_a_bar(monkeypatch):
    drawn = []
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=lambda items, **how: drawn.append(how) or items))
    for progress in (True, False):
        quantize(block(), batches(1), progress=progress)
    assert [how["disable"] for how in drawn] == [False, True] and "calibration" in drawn[0]["desc"]


@pytest.mark.parametrize("arguments, error, message", [
    ({"calibration": []}, ValueError, "quantize: calibration is empty: got \\[\\]; mode 'static' needs at least one batch"),
    ({"calibration": None}, ValueError, "quantize: calibration is empty: got None"),
    ({"calibration": sl.ones(8, 3, 8, 8)}, TypeError, "calibration is one Tensor; must be an iterable of batches"),
    ({"calibration": [sl.full((8, 3, 8, 8), float("nan"))]}, ValueError,
     "quantize: the operand of 'first' had values that are not finite in the calibration"),
    ({"calibration": [sl.ones(8, 3, 8, 8)]}, ValueError, "quantize: the operand of 'first' was 1 in all of the calibration"),
    ({"mode": "int4"}, ValueError, "quantize: mode is 'int4'; must be 'static', 'dynamic' or 'qdq'"),
    ({"method": "entropy"}, ValueError, "quantize: method is 'entropy'; must be 'min_max' or 'percentile'"),
    ({"percentile": 20}, ValueError, "quantize: percentile is 20; must be above 50, and 100 at most"),
])
def test_what_cannot_be_is_an_error_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        quantize(block(), **{"calibration": batches(1), **arguments})


def test_models_that_cannot_be_are_errors_by_name():
    with pytest.raises(ValueError, match="'Block' is in training mode; call eval"):
        quantize(Block(), batches(1))
    with pytest.raises(TypeError, match="quantize: got int; must be a module, an nn.Graph"):
        quantize(3, batches(1))
    with pytest.raises(ValueError, match="nothing is left to quantize: the graph has the layers \\[\\]"):
        quantize(nn.ReLU().eval(), batches(1))
    net = block()
    with sl.no_grad():
        net.fc.weight[0, 0] = float("inf")
    with pytest.raises(ValueError, match="the weight of 'fc' has values that are not finite"):
        quantize(net, batches(1), exclude=["out"])


def test_graphs_keep_their_arguments_and_results():
    class Both(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 4)

        def build(self, pair, scale):
            return {"y": self.net(pair[0]) * scale, "z": pair[1]}

    graph, x = Both(), (sl.randn(3, 6), sl.randn(3))
    with sl.no_grad():
        want = graph(x, sl.tensor(2.0))
    small = quantize(graph, [{"pair": x, "scale": sl.tensor(2.0)}, (x, sl.tensor(2.0))])
    got = small(x, scale=sl.tensor(2.0))
    np.testing.assert_allclose(got["y"].numpy(), want["y"].numpy(), atol=0.1)
    np.testing.assert_array_equal(got["z"].numpy(), x[1].numpy())
    assert small.layers[0].name == "net"


def test_a_result_that_is_also_an_operand_stays_exact():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x):
            hidden = x.tanh()
            return hidden, self.fc(hidden)

    net, x = Two().eval(), sl.randn(4, 6)
    np.testing.assert_array_equal(quantize(net, [x])(x)[0].numpy(), x.tanh().numpy())


def test_a_product_by_a_turned_weight_has_its_scales_by_column():
    sl.manual_seed(0)
    w = sl.randn(12, 7) * sl.logspace(-1, 1, 7)

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(w)

        def forward(self, x):
            return x @ self.w

    net, x = Product().eval(), sl.randn(40, 12)
    small = quantize(net, [x])
    assert small.layers[0].op == "matmul" and small.layers[0].weight.endswith("w")
    want = net(x).detach().numpy()
    assert (np.abs(small(x).numpy() - want).max(0) < 0.05 * np.abs(want).max(0)).all()


def test_an_empty_batch_gives_an_empty_result():
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    graph = nn.Graph.trace(net)
    with sl.no_grad():
        graph(sl.randn(0, 6))
    assert tuple(quantize(graph, mode="dynamic")(sl.zeros(0, 6)).shape) == (0, 2)
    with pytest.raises(ValueError, match="the operand of 'function.0' had nothing in the calibration"):
        quantize(graph, [sl.zeros(0, 6)])
