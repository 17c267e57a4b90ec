"""Post-training quantization: kernels of 8-bit integers against exact sums, calibration, bundles, and a digits CNN."""
import json
import os
import pathlib
import re
import subprocess
import sys
import types

import numpy as np
import pytest
import torch

import sluice as sl
from sluice import _C, nn
from sluice._base.tools import find_tool
from sluice.quantization import quantize
from sluice.quantization._observers import Percentile

VNNI = sl.info.as_dict()["instructions"]["oneDNN"] in ("avx512_core_vnni", "avx512_core_bf16", "avx512_core_amx")


def integers(random, shape, kind, low=None, high=None):
    info = np.iinfo(kind)
    return random.integers(info.min if low is None else low, (info.max if high is None else high) + 1, shape).astype(kind)


def zero_point(value):
    return sl.tensor([value], dtype=sl.int32) if value else None


def finished(sums, scale, shift, residual, residual_scale, activation, dtype):
    """What follows the exact sums, in float64."""
    rows = (-1, *(1 for _ in sums.shape[2:]))
    y = sums * scale.double().reshape(rows)
    if shift is not None:
        y = y + shift.double().reshape(rows)
    if residual is not None:
        y = y + residual.double() * (1.0 if residual_scale is None else residual_scale.double())
    if activation == "relu":
        y = y.relu()
    if dtype is None:
        return y, None
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    return y, y.round().clamp(low, high)


def check(got, exact, rounded, dtype):
    if dtype is None:
        assert got.dtype == sl.float32
        torch.testing.assert_close(torch.from_numpy(got.numpy()).double(), exact, rtol=2e-5, atol=2e-4)
        return
    off = torch.from_numpy(got.numpy()).double() - rounded
    assert off.abs().max() <= 1
    ties = ((exact - exact.floor()) - 0.5).abs()
    assert (ties[off != 0] < 1e-3).all()  # nothing else is rounded another way


CONVS = [  # x, weight, stride, padding, dilation, groups
    ((2, 16, 9, 8), (32, 16, 3, 3), 1, 1, 1, 1),
    ((2, 3, 11, 13), (7, 3, 3, 5), 2, 2, 1, 1),
    ((1, 24, 7, 7), (40, 24, 1, 1), 1, 0, 1, 1),
    ((3, 8, 10, 9), (8, 1, 3, 3), 1, 1, 1, 8),
    ((2, 12, 8, 8), (18, 4, 3, 3), 2, 1, 2, 3),
    ((2, 5, 30), (6, 5, 4), 3, 2, 1, 1),
    ((1, 4, 5, 6, 7), (9, 4, 3, 2, 3), 1, 1, 1, 1),
    ((1, 300, 6, 6), (20, 300, 3, 3), 1, 1, 1, 1),
]


@pytest.mark.parametrize("case", range(len(CONVS)))
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_int8_convolutions_are_those_of_exact_sums(case, kind):
    """Groups, strides, padding around a zero point other than 0, ranges that saturate, residuals of every type."""
    shape, weights, stride, padding, dilation, groups = CONVS[case]
    dims, random = len(shape) - 2, np.random.default_rng(case)
    x, w = integers(random, shape, kind), integers(random, weights, "int8", -127)
    conv = getattr(torch.nn.functional, f"conv{dims}d")
    spread = 60 * np.prod(weights[1:]) ** 0.5 * 70
    for zero, dtype, activation, rest in [(0, None, "none", None), (0, "uint8", "relu", None), (7, "int8", "none", "uint8"),
                                          (-3, None, "relu", "int8"), (128, "uint8", "relu", "float32"),
                                          (5, "int8", "relu", None)]:
        centred = torch.from_numpy(x).double() - zero
        sums = conv(centred, torch.from_numpy(w).double(), None, stride, padding, dilation, groups)
        scale = torch.from_numpy(random.uniform(0.5, 2, weights[0]).astype("float32")) * (150 / spread)
        shift = torch.from_numpy(random.uniform(-9, 9, weights[0]).astype("float32")) if rest != "int8" else None
        residual = step = None
        if rest == "float32":
            residual = torch.from_numpy(random.normal(0, 40, sums.shape).astype("float32"))
        elif rest:
            residual, step = torch.from_numpy(integers(random, sums.shape, rest)), torch.tensor([0.31])
        exact, rounded = finished(sums, scale, shift, residual, step, activation, dtype)
        ours = [None if t is None else sl.from_numpy(t.numpy()) for t in (scale, shift, residual, step)]
        got = _C.ops.int8_conv(sl.from_numpy(x), sl.from_numpy(w), ours[0], ours[1], zero_point(zero), ours[2], ours[3],
                               activation=activation, dtype=dtype and getattr(sl, dtype), stride=[stride] * dims,
                               padding=[padding] * dims, dilation=[dilation] * dims, groups=groups)
        check(got, exact, rounded, dtype)
        if dtype == "uint8":
            assert (rounded == 0).any() and (rounded == 255).any()  # both ends were reached


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 100), (70,), (1, 512), (129, 33), (0, 16)])
def test_int8_products_are_those_of_exact_sums(shape):
    random = np.random.default_rng(sum(shape))
    for kind, zero, dtype, activation in [("uint8", 0, None, "none"), ("int8", 9, "uint8", "relu"),
                                          ("uint8", 131, "int8", "none")]:
        x, w = integers(random, shape, kind), integers(random, (19, shape[-1]), "int8", -127)
        sums = (torch.from_numpy(x).double() - zero) @ torch.from_numpy(w).double().T
        scale = torch.from_numpy(random.uniform(0.5, 2, 19).astype("float32")) / (40 * shape[-1] ** 0.5)
        shift = torch.from_numpy(random.uniform(-9, 9, 19).astype("float32"))
        exact, rounded = finished(sums.reshape(-1, 19), scale, shift, None, None, activation, dtype)
        got = _C.ops.int8_linear(sl.from_numpy(x), sl.from_numpy(w), sl.from_numpy(scale.numpy()),
                                 sl.from_numpy(shift.numpy()), zero_point(zero), activation=activation,
                                 dtype=dtype and getattr(sl, dtype))
        assert tuple(got.shape) == (*shape[:-1], 19)
        if got.numel():
            check(got.reshape(-1, 19), exact, rounded, dtype)


SHAPES = """
import sluice as sl
from sluice import _C
for rows, columns in ((1, 2048), (2, 64), (64, 512)):
    for zero in (None, sl.tensor([3], dtype=sl.int32)):
        x, w = sl.zeros(rows, columns, dtype=sl.uint8), sl.zeros(10, columns, dtype=sl.int8)
        _C.ops.int8_linear(x, w, sl.ones(10), sl.ones(10), zero)
for dims, size, groups in ((1, 9, 1), (2, 1, 1), (2, 9, 16), (3, 5, 1)):
    for kind in (sl.uint8, sl.int8):
        for residual in (None, sl.zeros(1, 16, *[size] * dims, dtype=sl.uint8)):
            x, w = sl.zeros(1, 16, *[size] * dims, dtype=kind), sl.zeros(16, 16 // groups, *[1] * dims, dtype=sl.int8)
            _C.ops.int8_conv(x, w, sl.ones(16), sl.ones(16), None, residual, None if residual is None else sl.ones(1),
                             stride=[1] * dims, padding=[0] * dims, dilation=[1] * dims, groups=groups)
"""


@pytest.mark.skipif(not VNNI, reason="the processor has no VNNI")
def test_no_shape_is_left_to_the_librarys_plain_loops():
    done = subprocess.run([sys.executable, "-c", SHAPES], capture_output=True, text=True,
                          env={**os.environ, "SLUICE_LOG": "debug"})
    chosen = re.findall(r"oneDNN: (\S+) for", done.stdout + done.stderr)
    assert done.returncode == 0 and len(chosen) >= 20, done.stderr
    assert not [name for name in chosen if name.startswith("ref")]


def test_quantize_and_dequantize_follow_torch():
    random = np.random.default_rng(0)
    x = random.normal(0, 40, (4, 6, 5)).astype("float32")
    x[0, 0, :4] = [0.05, 0.15, 1e9, -1e9]  # halves go to even, and what is out of range stays at its end
    q = _C.ops.quantize(sl.from_numpy(x), sl.tensor([0.1]), sl.tensor([3], dtype=sl.int32), dtype=sl.uint8)
    want = torch.quantize_per_tensor(torch.from_numpy(x), 0.1, 3, torch.quint8)
    np.testing.assert_allclose(q.numpy(), want.int_repr().numpy(), atol=1)  # torch multiplies by 1 / 0.1
    exact = np.clip(np.rint(x / np.float32(0.1)) + 3, 0, 255)
    np.testing.assert_array_equal(q.numpy(), exact)
    scales = np.array([0.5, 1.0, 2.0, 0.25, 3.0, 0.125], "float32")
    q = _C.ops.quantize(sl.from_numpy(x), sl.from_numpy(scales), axis=1, dtype=sl.int8)
    want = torch.quantize_per_channel(torch.from_numpy(x), torch.from_numpy(scales), torch.zeros(6, dtype=torch.int64), 1,
                                      torch.qint8)
    back = _C.ops.dequantize(q, sl.from_numpy(scales), axis=1).numpy()
    powers = scales != 3  # by which dividing is exact either way
    np.testing.assert_array_equal(back[:, powers], want.dequantize().numpy()[:, powers])
    np.testing.assert_allclose(back, want.dequantize().numpy(), atol=3.0)


@pytest.mark.parametrize("call, message", [
    (lambda x, w: _C.ops.int8_conv(x.float(), w, sl.ones(4), stride=[1], padding=[0], dilation=[1]),
     "int8_conv: operands: got float32(1, 3, 5) and int8(4, 3, 2); x must be uint8 or int8, weight int8"),
    (lambda x, w: _C.ops.int8_conv(x, w, sl.ones(3), stride=[1], padding=[0], dilation=[1]),
     "int8_conv: scale: got float32(3,); must be float32(4,), an element for each output channel"),
    (lambda x, w: _C.ops.int8_conv(x, w, sl.ones(4), stride=[1], padding=[0], dilation=[1], dtype=sl.int32),
     "int8_conv: dtype is int32; must be uint8 or int8, or none for a result in floats"),
    (lambda x, w: _C.ops.int8_linear(x, w[0], sl.ones(3)),
     "int8_linear: operands do not fit: x is (1, 3, 5), weight is (3, 2); weight must be (out_features, x.shape[-1])"),
    (lambda x, w: _C.ops.quantize(x.float(), sl.ones(2), axis=1),
     "quantize: scale does not fit: float32(2,); must have one element, or 3 for axis 1 of float32(1, 3, 5)"),
    (lambda x, w: _C.ops.quantize(x.float(), sl.ones(1), sl.ones(1)), "quantize: zero_point: got float32(1,); must be int32"),
    (lambda x, w: _C.ops.dequantize(x.float(), sl.ones(1)), "dequantize: q: got float32(1, 3, 5); must be uint8 or int8"),
])
def test_operands_that_do_not_fit_are_named(call, message):
    with pytest.raises(RuntimeError if "dtype is" not in message else ValueError) as error:
        call(sl.zeros(1, 3, 5, dtype=sl.uint8), sl.zeros(4, 3, 2, dtype=sl.int8))
    assert message in str(error.value)


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


# The digits that scikit-learn ships with.


def digits_net():
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1),
                         nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, 10))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A trained net: (folder with its bundle and data, held-out images, labels)."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("digits")
    data = load_digits()
    images, labels = (data.images[:, None] / 16).astype("float32"), data.target.astype("int64")
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], labels[order]
    sl.manual_seed(0)
    net = digits_net()

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net, self.loss = net, nn.CrossEntropyLoss()
            self.add_optimizer(sl.optim.Adam(net.parameters(), lr=2e-3))

        def build(self, x, y):
            loss = self.loss(self.net(x), y)
            loss.backward()
            return loss

    train, size = Train(), 64
    for epoch in range(4):
        for i in range(0, 1280, size):
            train(sl.from_numpy(images[i : i + size]), sl.from_numpy(labels[i : i + size]))
    train.synchronize()
    graph = nn.Graph.trace(net.eval())
    with sl.no_grad():
        graph(sl.from_numpy(images[:size]))
    sl.save(graph, folder / "digits")
    np.save(folder / "digits.npy", images[:400])
    return folder, images[1280:], labels[1280:]


def accuracy(graph, images, labels, size=64):
    right = total = 0
    for i in range(0, len(images) - size + 1, size):
        right += int((graph(sl.from_numpy(images[i : i + size])).numpy().argmax(1) == labels[i : i + size]).sum())
        total += size
    return right / total


def size_of(folder):
    return sum(file.stat().st_size for file in pathlib.Path(folder).iterdir())


def command(*arguments, **environment):
    return subprocess.run([sys.executable, "-m", "sluice.quantization", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, **environment})


@pytest.mark.parametrize("mode", ["static", "dynamic", "qdq"])
def test_the_command_quantizes_digits(digits, mode, tmp_path):
    """The accuracy falls by less than 1 %, and the files take less than 30 % of what they took."""
    folder, images, labels = digits
    done = command(folder / "digits", "--calib", folder / "digits.npy", "--mode", mode, "-o", tmp_path / "small", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [layer["op"] for layer in told["layers"]] == ["conv", "conv", "linear", "linear"]
    before, after = size_of(folder / "digits"), size_of(tmp_path / "small")
    assert told["bytes"] == {"before": before, "after": after} and after <= 0.3 * before
    assert told["results"]["same_largest"] > 0.98
    exact, small = (accuracy(sl.load_graph(path), images, labels) for path in (folder / "digits", tmp_path / "small"))
    assert exact > 0.95 and small >= exact - 0.01


def test_a_bundle_of_integers_runs_without_python(digits, tmp_path):
    folder, images, _ = digits
    small = quantize(folder / "digits", [images[:64], images[64:128]])
    sl.save(small, tmp_path / "small")
    np.save(tmp_path / "x.npy", images[:64])
    subprocess.run([find_tool("sluice-run"), tmp_path / "small", f"--input=@{tmp_path / 'x.npy'}",
                    f"--output=@{tmp_path / 'y.npy'}", "--quiet"], check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), small(sl.from_numpy(images[:64])).numpy())


CHILD = """
import sys, warnings
import numpy as np
import sluice as sl
from sluice import _C
warnings.simplefilter("ignore")
folder, made = sys.argv[1:]
x = np.load(f"{folder}/digits.npy")[:64]
graph = sl.load_graph(f"{folder}/small")
np.save(made, graph(sl.from_numpy(x)).numpy())
random = np.random.default_rng(0)
q = random.integers(0, 256, (4, 16, 9, 9)).astype("uint8")
w = np.full((24, 16, 3, 3), 127, "int8")  # sums of two products are beyond 16 bits
w[::2] = random.integers(-127, 128, w[::2].shape)
y = _C.ops.int8_conv(sl.from_numpy(q), sl.from_numpy(w), sl.full((24,), 1e-4), activation="relu", dtype=sl.uint8, stride=[1, 1],
                     padding=[1, 1], dilation=[1, 1])
np.save(made + ".conv", y.numpy())
print("int8_conv" in graph._call.session.plan_json())
"""


def test_processors_without_vnni_differ_by_a_step_at_most(digits, tmp_path):
    """In floats of the same integers, which cannot saturate: they are exact up to 2^24."""
    folder, images, _ = digits
    sl.save(quantize(folder / "digits", [images[:64]]), folder / "small")
    made = []
    for isa in ("", "avx512", "avx2"):
        done = subprocess.run([sys.executable, "-c", CHILD, folder, tmp_path / f"of{isa}.npy"], capture_output=True, text=True,
                              env={**os.environ, "SLUICE_MAX_ISA": isa})
        assert done.returncode == 0, done.stderr
        assert not isa or done.stdout.strip() == "False"
        made.append([np.load(tmp_path / f"of{isa}.npy{end}") for end in ("", ".conv.npy")])
    for logits, conv in made[1:]:
        assert np.abs(conv.astype(int) - made[0][1].astype(int)).max() <= 1
        np.testing.assert_allclose(logits, made[0][0], atol=0.02 * np.abs(made[0][0]).max())
    assert (made[0][1] == 255).any() and (made[0][1] < 255).any()


class Scaled(sl.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = sl.nn.Linear(8, 4)

    def forward(self, x, by):
        return self.layer(x) * by


def test_the_command_says_what_is_wrong(digits, tmp_path):
    folder, images, _ = digits
    np.save(tmp_path / "few.npy", images[:8])
    np.save(tmp_path / "nan.npy", np.full((64, 1, 8, 8), np.nan, "float32"))
    (tmp_path / "text.npy").write_text("none")
    (tmp_path / "empty.npy").touch()
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 and no more")
    model = folder / "digits"
    for arguments, message in [
        *(([model, "--calib", tmp_path / name], f"{name}: no arrays of NumPy: ")
          for name in ("text.npy", "empty.npy", "cut.npz")),
        ([tmp_path / "none"], f"sluice-quantize: {tmp_path / 'none'}: no bundle of one graph: there is no "
                              f"{tmp_path / 'none/graph.txt'}; write one with sluice.save(graph, directory)"),
        ([model], "sluice-quantize: --calib: mode static needs rows of inputs; give a file, or --mode dynamic"),
        ([model, "--calib", tmp_path / "few.npy"], "few.npy: input is (8, 1, 8, 8); the graph takes (64, 1, 8, 8): give at "
                                                   "least 64 rows of (1, 8, 8)"),
        ([model, "--calib", tmp_path / "nan.npy"], "the operand of 'function.0' had values that are not finite"),
        ([model, "--calib", folder / "digits.npy", "--exclude", "nobody"], "exclude: no layer is named 'nobody'"),
        ([model, "--calib", tmp_path / "none.npy"], f"sluice-quantize: {tmp_path / 'none.npy'}: No such file or directory"),
        ([model, "--mode", "int4"], "argument --mode: invalid choice: 'int4'"),
        ([model, "--mode", "dynamic", "-o", model], f"sluice-quantize: --output: {model} is the model; write to another "
                                                    "directory"),
    ]:
        done = command(*arguments)
        assert done.returncode == 2 and message in done.stderr, done.stderr
    number = sl.nn.Graph.trace(Scaled().eval())
    number(sl.randn(4, 8), sl.tensor(2.0))
    sl.save(number, tmp_path / "number")
    np.savez(tmp_path / "rows.npz", x=images[:4], by=np.float32(2))
    done = command(tmp_path / "number", "--calib", tmp_path / "rows.npz")
    assert done.returncode == 2 and "of the graph has no rows; call sluice.quantization.quantize" in done.stderr, done.stderr
    told = command("--help")
    assert told.returncode == 0 and "sluice-quantize MODEL --calib images.npy" in told.stdout and "--keep-first" in told.stdout
    text = command(model, "--calib", folder / "digits.npy", "--keep-last", "--batches", "2", "-o", tmp_path / "out").stdout
    assert "as it was" in text and "files: " in text and "the largest of a row is the same in" in text
