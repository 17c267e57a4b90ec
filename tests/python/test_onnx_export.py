"""Programs as models of ONNX: equal in ONNX Runtime at sizes that were not traced, the same bits when read again, refusals by module."""

import numpy as np
import pytest
from onnx_models import INSTALLED, needs_onnx

import sluice as sl
from sluice import nn
from sluice.nn import functional as F

pytestmark = needs_onnx
if INSTALLED:
    import onnx
    import onnxruntime

def by_onnxruntime(path, arrays):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {p.name: a for p, a in zip(session.get_inputs(), arrays)})


def checked(path):
    model = onnx.load(path)
    onnx.checker.check_model(str(path), full_check=True)
    return model


def listed(results):
    return list(results) if isinstance(results, (tuple, list)) else [results]


def exported(model, args, path, **options):
    """Exports, checks, and compares ONNX Runtime's results, and those of the model read again, with the program's."""
    args = args if isinstance(args, tuple) else (args,)
    sl.onnx.export(model, args, path, **options)
    proto = checked(path)
    with sl.no_grad():
        wanted = [t.numpy() for t in listed(model(*args))]
        again = [t.numpy() for t in listed(sl.onnx.load(path)(*args))]
    for ours, theirs, back in zip(wanted, by_onnxruntime(path, [a.numpy() for a in args]), again):
        assert theirs.shape == ours.shape and theirs.dtype == ours.dtype
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(back, ours, rtol=1e-5, atol=1e-6)
    return proto


def ops_of(proto):
    return [n.op_type for n in proto.graph.node]


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.conv2(F.relu(self.norm1(self.conv1(x)))))


class Attends(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads, self.qkv, self.out, self.norm = heads, nn.Linear(size, 3 * size), nn.Linear(size, size), nn.LayerNorm(size)

    def forward(self, x):
        n, t, size = x.shape
        q, k, v = (self.qkv(self.norm(x)).reshape(n, t, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4)).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, size)
        return x + self.out(y)


def convolutional():
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), Residual(8),
                         nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 2 * 2, 5)).eval()


def zoo():
    """(name, module, arguments, axes of the batch)"""
    images, tokens = sl.randn(2, 3, 16, 16), sl.randint(0, 11, (2, 7))
    transformer = nn.Sequential(nn.Embedding(11, 16), Attends(16, 4), nn.GELU(), nn.Linear(16, 4), nn.LogSoftmax(-1)).eval()
    generator = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), nn.GroupNorm(2, 6), nn.Tanh()).eval()
    return [("convolutional", convolutional(), images, {0: "batch"}), ("transformer", transformer, tokens, {0: "batch", 1: "time"}),
            ("generator", generator, sl.randn(2, 4, 5, 5), {0: "batch"}),
            ("mlp", nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Dropout(0.5), nn.Linear(8, 3), nn.Softmax(-1)).eval(), sl.randn(4, 6), {0: "batch"})]


@pytest.mark.parametrize("at", range(4))
def test_the_zoo_at_sizes_that_were_not_traced(at, tmp_path):
    name, module, x, axes = zoo()[at]
    path = tmp_path / "m.onnx"
    exported(module, x, path)
    names = sl.lower(module, x)._trace.given.names
    sl.onnx.export(module, x, path, dynamic={names[0]: axes})
    checked(path)
    sl.onnx.export(module, x, tmp_path / "newest.onnx", dynamic={names[0]: axes}, opset=23)
    again = sl.onnx.load(tmp_path / "newest.onnx")
    for batch in (1, 7):
        shape = list(x.shape)
        for axis in axes:
            shape[axis] = batch if axis == 0 else 3 + batch
        other = sl.randint(0, 11, tuple(shape)) if x.dtype == sl.int64 else sl.randn(*shape)
        with sl.no_grad():
            wanted = module(other).numpy()
            np.testing.assert_allclose(again(other).numpy(), wanted, rtol=1e-6, atol=1e-6, err_msg=name)  # the same ops
        np.testing.assert_allclose(by_onnxruntime(path, [other.numpy()])[0], wanted, rtol=1e-4, atol=1e-5)


def test_nodes_are_readable(tmp_path):
    path = tmp_path / "m.onnx"
    proto = exported(convolutional(), sl.randn(2, 3, 16, 16), path)
    ops = ops_of(proto)
    assert ops.count("Conv") == 3 and ops.count("BatchNormalization") == 2 and ops.count("Gemm") == 1 and "MaxPool" in ops
    assert {i.name for i in proto.graph.initializer} >= {"0.weight", "4.conv1.weight", "7.bias"}
    assert next(n.name for n in proto.graph.node if n.op_type == "Conv").startswith("0/Conv")
    assert proto.graph.input[0].name == "input" and proto.opset_import[0].version == 17 and proto.producer_name == "sluice"
    assert "LayerNormalization" in ops_of(exported(nn.LayerNorm(4).eval(), sl.randn(2, 4), path))
    assert "Gelu" in ops_of(exported(nn.GELU(), sl.randn(3), path, opset=20)) and "Gelu" not in ops_of(exported(nn.GELU(), sl.randn(3), path))


CALLS = {
    "arithmetic": lambda x, y: (x + y) * (x - y) / (y.abs() + 1),
    "remainders": lambda x, y: sl.remainder(x, y.abs() + 1) + sl.fmod(x, y.abs() + 1),
    "logic": lambda x, y: ((x > y) & ~(x == y)) | (y >= 0.5),
    "exponents": lambda x, y: sl.exp(x) + sl.expm1(x) + sl.log1p(y.abs()) + sl.log2(y.abs() + 1) + sl.rsqrt(y.abs() + 1),
    "angles": lambda x, y: sl.atan2(x, y) + sl.sin(x) + sl.atan(y) + sl.sinh(x),
    "reductions": lambda x, y: (x.sum(), x.mean(1), x.amax(0, keepdim=True), x.argmax(1), y.prod(0), (x > 0).any(1), y.var(1), x.norm(dim=1)),
    "orders": lambda x, y: (x.sort(1).values, x.topk(2, 1).indices, x.cumsum(1)),
    "movement": lambda x, y: (x.t(), x.flip(1), x[1:, ::2], sl.cat([x, y], 1), x.roll(1, 0), F.pad(x, (1, 2), value=3.0), x.tril()),
    "lookups": lambda x, y: (x.index_select(1, sl.tensor([2, 0])), x.gather(1, sl.tensor([[0, 1], [2, 3], [1, 1]])), F.one_hot(sl.tensor([0, 2]), 3)),
    "scatters": lambda x, y: (x.scatter_add(1, sl.tensor([[0, 1], [2, 3], [1, 1]]), y[:, :2]), x.index_add(0, sl.tensor([0, 0]), y[:2])),
    "activations": lambda x, y: F.gelu(x) + F.silu(y) + F.leaky_relu(x) + F.elu(y) + F.hardswish(x) + F.mish(y) + F.softplus(x),
    "products": lambda x, y: (x @ y.t(), sl.einsum("ij,kj->ik", x, y), F.softmax(x, 1) @ y.t()),
    "casts": lambda x, y: (x.to(sl.int64), (x > 0).to(sl.float64), x.to(sl.float16).to(sl.float32), (x * 3).round()),
    "creation": lambda x, y: x + sl.arange(4) + sl.full((3, 1), 2.0) + sl.linspace(0, 1, 4),
    "choices": lambda x, y: (sl.where(x > 0, x, y), x.clamp(-0.5, 0.5), x.masked_fill(y > 0, 7.0), sl.maximum(x, y)),
    "windows": lambda x, y: x.unfold(1, 2, 1),
    "norms": lambda x, y: F.rms_norm(x, (4,)) + F.layer_norm(y, (4,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_are_equal_in_onnxruntime(name, tmp_path):
    sl.manual_seed(3)
    exported(CALLS[name], (sl.randn(3, 4), sl.randn(3, 4)), tmp_path / "m.onnx")


def test_training_is_refused_by_module(tmp_path):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4))
    with pytest.raises(NotImplementedError, match=r"onnx\.export: .*of module '1': it draws random numbers; export a model in eval\(\) mode"):
        sl.onnx.export(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), sl.randn(3, 4), tmp_path / "m.onnx")
    with pytest.raises(NotImplementedError, match=r"variable '2\.num_batches_tracked' is changed by a step, in module '2'; export a model in eval\(\)"):
        sl.onnx.export(net, sl.randn(3, 4), tmp_path / "m.onnx")
    sl.onnx.export(net.eval(), sl.randn(3, 4), tmp_path / "m.onnx")


def test_what_onnx_has_not_is_refused_by_name(tmp_path):
    with pytest.raises(NotImplementedError, match="linalg_svd.* has no form in ONNX"):
        sl.onnx.export(lambda x: sl.linalg.svd(x)[1], sl.randn(3, 3), tmp_path / "m.onnx")
    with pytest.raises(NotImplementedError, match="opset 17; the model's ops need 18"):
        sl.onnx.export(lambda x: x & 3, sl.tensor([1, 2]), tmp_path / "m.onnx", opset=17)
    assert sl.onnx.export(lambda x: x & 3, sl.tensor([1, 2]), tmp_path / "m.onnx") == 18
    with pytest.raises(ValueError, match="opset 12; must be 17 to"):
        sl.onnx.export(lambda x: x, sl.tensor([1, 2]), tmp_path / "m.onnx", opset=12)
    with pytest.raises(ValueError, match=r"dynamic names \['z'\]; the inputs are \['x'\]"):
        sl.onnx.export(lambda x: x + 1, sl.zeros(2), tmp_path / "m.onnx", dynamic={"z": {0: "n"}})


def test_sizes_that_do_not_follow_from_the_dims_are_refused(tmp_path):
    def halves(x):
        return x[:, : (x.shape[1] + 1) // 2]

    with pytest.raises(NotImplementedError, match="is no sum of their products; export it with that dim fixed"):
        sl.onnx.export(halves, sl.zeros(2, 6), tmp_path / "m.onnx", dynamic={"x": {1: "n"}})

    def other(x):
        return x.relu() if x.shape[0] % 2 else x.tanh()

    with pytest.raises(NotImplementedError, match="another one at another size of a dim"):
        sl.onnx.export(other, sl.zeros(2, 6), tmp_path / "m.onnx", dynamic={"x": {0: "n"}})
    with pytest.raises(NotImplementedError, match="is another one at another size of a dim"):
        sl.onnx.export(lambda x: x + sl.tensor([float(i * i) for i in range(x.shape[0])]), sl.zeros(3), tmp_path / "m.onnx", dynamic={"x": {0: "n"}})


def test_sums_of_products_of_dims(tmp_path):
    def f(x, y):
        n, m = x.shape[0], y.shape[0]
        table = x.reshape(n, 1, 2).expand(n, m, 2).reshape(n * m, 2)
        return table, sl.arange(2 * n + m), sl.cat([x, y, x]), sl.ones(n, m).tril(), sl.full((m,), 2.5), sl.linspace(0, n - 1, n)

    path = tmp_path / "m.onnx"
    sl.onnx.export(f, (sl.zeros(2, 2), sl.zeros(3, 2)), path, dynamic={"x": {0: "n"}, "y": ["m", None]})
    checked(path)
    for n, m in ((1, 1), (2, 9), (5, 4)):
        x, y = sl.randn(n, 2), sl.randn(m, 2)
        for ours, theirs in zip(f(x, y), by_onnxruntime(path, [x.numpy(), y.numpy()])):
            np.testing.assert_array_equal(theirs, ours.numpy())


def test_external_data(tmp_path):
    net, path = nn.Linear(64, 32), tmp_path / "m.onnx"
    sl.onnx.export(net, sl.randn(2, 64), path, external_data=True)
    assert (tmp_path / "m.onnx.data").stat().st_size >= 64 * 32 * 4 and path.stat().st_size < 4096
    x = sl.randn(3, 64)
    sl.onnx.export(net, x, path, external_data=True)
    np.testing.assert_allclose(by_onnxruntime(path, [x.numpy()])[0], net(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(sl.onnx.load(path)(x).detach().numpy(), net(x).detach().numpy())


def test_external_data_is_not_written_through_a_link(tmp_path):
    (tmp_path / "other").write_text("kept")
    (tmp_path / "m.onnx.data").symlink_to("other")
    with pytest.raises(OSError, match="m.onnx.data: a link; must be a file of its own, or nothing"):
        sl.onnx.export(nn.Linear(64, 32), sl.randn(2, 64), tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "other").read_text() == "kept" and not (tmp_path / "m.onnx").exists()
