"""Training with rounded layers: an option of graphs gives them observers, and integers with the ranges that they have learned are as good."""

import subprocess

import numpy as np
import pytest
from onnx_models import INSTALLED
from test_quantized_digits import accuracy, digits_net

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool
from sluice.quantization import convert, prepare, QatConfig


class Train(nn.Graph):
    def __init__(self, net, lr=2e-3, **config):
        super().__init__()
        self.net, self.loss = net, nn.CrossEntropyLoss()
        self.add_optimizer(sl.optim.Adam(net.parameters(), lr=lr))
        if config:
            self.config.qat_config(**config)
        self.config.enable_quantization_aware_training()

    def build(self, x, y):
        loss = self.loss(self.net(x), y)
        loss.backward()
        return loss


def small_net():
    sl.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


def batch(n=8):
    return sl.randn(n, 1, 4, 4), sl.randint(0, 3, (n,))


def data():
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = (digits.images[:, None] / 16).astype("float32"), digits.target.astype("int64")
    order = np.random.default_rng(0).permutation(len(images))
    return images[order], labels[order]


@pytest.fixture(scope="module")
def trained():
    """(a net trained with rounded layers, images and labels that it has not seen)"""
    images, labels = data()
    sl.manual_seed(0)
    net = digits_net()
    train, size = Train(net), 64
    for _ in range(4):
        for i in range(0, 1280, size):
            train(sl.from_numpy(images[i : i + size]), sl.from_numpy(labels[i : i + size]))
    train.synchronize()
    return net.eval(), images[1280:], labels[1280:]


def exact(net):
    """The net as it computes in floats."""
    from sluice.nn.modules.quantization import exact_layers

    with exact_layers(), sl.no_grad():
        graph = nn.Graph.trace(net)
        graph.compile(sl.zeros(64, 1, 8, 8))
    return graph


@pytest.mark.parametrize("mode", ["static", "qdq"])
def test_integers_of_digits_are_as_good(trained, mode):
    """Accuracy falls by less than 1 %, and the results are those of training's own rounding."""
    net, images, labels = trained
    small = convert(net, images[:64], mode=mode)
    assert [layer.name for layer in small.layers] == ["0", "3", "8", "10"] and small.kept == []
    floats, integers = accuracy(exact(net), images, labels), accuracy(small, images, labels)
    print(f"count: accuracy of digits trained for integers: {integers:.4f} in int8, {floats:.4f} in floats")
    assert floats > 0.95 and integers >= floats - 0.01
    with sl.no_grad():
        rounded = net(sl.from_numpy(images[:64])).numpy()
    np.testing.assert_allclose(small(sl.from_numpy(images[:64])).numpy(), rounded, atol=0.02 * np.abs(rounded).max())


def test_scales_are_the_observed_ranges(trained):
    net, images, _ = trained
    small = convert(net, images[:64])
    for layer in small.layers:
        observer = net.get_submodule(layer.name).input_observer
        largest = max(abs(observer.moving_min.item()), abs(observer.moving_max.item()))
        assert layer.scale == pytest.approx(largest / 127) and layer.zero_point == 128


@pytest.mark.skipif(not INSTALLED, reason="onnx is not installed, or this build reads no models of ONNX")
def test_exported_as_pairs_of_quantize_and_dequantize(trained, tmp_path):
    import onnx
    import onnxruntime

    net, images, labels = trained
    small, path = convert(net, images[:64], mode="qdq"), tmp_path / "m.onnx"
    sl.onnx.export(small, None, path)
    onnx.checker.check_model(str(path), full_check=True)
    proto = onnx.load(path)
    ops = [node.op_type for node in proto.graph.node]
    assert ops.count("QuantizeLinear") == 4 and ops.count("DequantizeLinear") == 8  # inputs, and weights of each channel
    int8 = {tensor.name: tensor for tensor in proto.graph.initializer if tensor.data_type == onnx.TensorProto.INT8}
    assert "0.weight.int8" in int8 and len([name for name in int8 if name.endswith(".int8")]) == 4
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    there = lambda x: sl.from_numpy(session.run(None, {name: x.numpy()})[0])  # noqa: E731
    assert accuracy(there, images, labels) >= accuracy(exact(net), images, labels) - 0.01
    again = sl.onnx.load(path)
    x = sl.from_numpy(images[:64])
    np.testing.assert_allclose(again(x).detach().numpy(), small(x).numpy(), atol=0.02 * np.abs(small(x).numpy()).max())
    with pytest.raises(NotImplementedError, match="is a graph of fixed sizes, whose program is not there"):
        sl.onnx.export(small, None, path, dynamic={"input": {0: "n"}})


def test_plan_viz_shows_observers(tmp_path):
    train = Train(small_net())
    train(*batch())
    sl.save(train, tmp_path / "train")
    shown = subprocess.run([find_tool("plan-viz"), "show", tmp_path / "train"], capture_output=True, text=True, check=True).stdout
    for layer in ("net.0", "net.3"):
        assert f"{layer}.input_observer/" in shown and f"{layer}.weight_observer/" in shown


def test_a_step_is_that_of_eager_calls():
    nets = [small_net(), small_net()]
    train = Train(nets[0])
    prepare(nets[1])
    optimizer = sl.optim.Adam(nets[1].parameters(), lr=2e-3)
    for _ in range(3):
        x, y = batch()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(nets[1](x), y)
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(train(x, y).item(), loss.item(), rtol=1e-5)
    train.synchronize()
    for (name, a), (_, b) in zip(nets[0].state_dict().items(), nets[1].state_dict().items()):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def test_gradients_pass_the_rounding():
    """Those of the weight are of the rounded input, and those of the input of the rounded weight."""
    layer, x = nn.Linear(3, 2), sl.randn(4, 3, requires_grad=True)
    prepare(nn.Sequential(layer))
    layer(x).sum().backward()
    observer = layer.input_observer
    scale = max(abs(observer.moving_min.item()), abs(observer.moving_max.item())) / 127
    rounded = np.round(x.detach().numpy() / scale) * scale
    np.testing.assert_allclose(layer.weight.grad.numpy(), np.tile(rounded.sum(0), (2, 1)), rtol=1e-4, atol=1e-5)
    w = layer.weight.detach().numpy()
    step = np.abs(w).max(1, keepdims=True) / 127
    np.testing.assert_allclose(x.grad.numpy(), np.tile((np.round(w / step) * step).sum(0), (4, 1)), rtol=1e-4, atol=1e-5)


def test_ranges_are_moving_averages_that_stop():
    layer = nn.Linear(1, 1)
    prepare(nn.Sequential(layer), QatConfig(moving_min_max_momentum=0.5, moving_min_max_stop_update_after_iters=2, symmetric=False))
    for value in (4.0, 8.0, 100.0):
        layer(sl.tensor([[value], [-1.0]]))
    assert layer.input_observer.moving_max.item() == 6.0 and layer.input_observer.moving_min.item() == -1.0
    layer.eval()
    before = layer.input_observer.moving_max.item()
    layer(sl.tensor([[1e6]]))
    assert layer.input_observer.moving_max.item() == before


@pytest.mark.parametrize("config", [{"symmetric": False}, {"per_channel_weight_quantization": False}])
def test_other_ways_to_round(config):
    net, (x, y) = small_net(), batch()
    train = Train(net, **config)
    for _ in range(3):
        train(x, y)
    train.synchronize()
    small = convert(net.eval(), x)
    with sl.no_grad():
        rounded = net(x).numpy()
    np.testing.assert_allclose(small(x).numpy(), rounded, atol=0.03 * np.abs(rounded).max())
    if "symmetric" in config:
        assert small.layers[1].zero_point == 0  # after a relu


def test_what_has_seen_nothing_stays_as_it_is():
    net, x = small_net(), sl.randn(2, 1, 4, 4)
    wanted = net(x).detach().numpy()
    assert prepare(net) == ["0", "3"] and prepare(net) == []
    net.eval()
    with sl.no_grad():
        assert np.abs(net(x).numpy() - wanted).max() < 0.1 * np.abs(wanted).max()  # weights are rounded, inputs are not
    with pytest.raises(ValueError, match="no layer of the model has observed a range; train it in a graph with config.enable_quantization_aware"):
        convert(net, x)
    net.train()
    net[0](x)
    small = convert(net.eval(), x)
    assert [layer.name for layer in small.layers] == ["0"] and small.kept == ["3"]


def test_states_hold_ranges():
    net = small_net()
    train, (x, y) = Train(net), batch()
    train(x, y)
    train.synchronize()
    kept, other = train.state_dict(), Train(small_net())
    other.load_state_dict(kept)
    assert other.net[0].input_observer.moving_max.item() == net[0].input_observer.moving_max.item()
    assert other(x, y).item() == train(x, y).item()


def test_it_is_refused_by_name():
    graph = nn.Graph.trace(small_net())
    with pytest.raises(TypeError, match="qat_config: got 'bits'; must be some of per_channel_weight_quantization, symmetric,"):
        graph.config.qat_config(bits=4)
    with pytest.raises(ValueError, match="moving_min_max_momentum: got 2; must be at least 0 and below 1"):
        graph.config.qat_config(moving_min_max_momentum=2)
    with pytest.raises(ValueError, match="moving_min_max_stop_update_after_iters: got 0; must be an int of at least 1, or None"):
        graph.config.qat_config(moving_min_max_stop_update_after_iters=0)
    with pytest.raises(TypeError, match="prepare: got function; must be a module"):
        prepare(small_net)
    with pytest.raises(ValueError, match="mode is 'dynamic'; must be 'static' or 'qdq'"):
        convert(small_net(), sl.zeros(1, 1, 4, 4), mode="dynamic")
    net = small_net()
    prepare(net)
    net(sl.randn(2, 1, 4, 4))
    with pytest.raises(ValueError, match="is in training mode; call eval"):
        convert(net, sl.zeros(1, 1, 4, 4))
    with pytest.raises(ValueError, match="nothing is left to quantize: layers with ranges are"):
        convert(net.eval(), sl.zeros(1, 1, 4, 4), exclude=["*"])
