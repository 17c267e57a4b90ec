"""convert_to_onnx_and_check: what it compares, prints and refuses; torchvision's nets are within 1e-4 of ONNX Runtime."""

import sys

import numpy as np
import pytest
from onnx_models import needs_onnx
from torchvision_beside import both, needs_torchvision

import sluice as sl
from sluice import nn

pytestmark = needs_onnx


def small():
    sl.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(-1)).eval()


def test_it_prints_and_returns_the_largest_difference(capsys):
    difference = sl.onnx.convert_to_onnx_and_check(small(), sl.randn(5, 4), opset=20)
    assert 0 <= difference <= 1e-6
    told = capsys.readouterr().out
    assert told.startswith("onnx: 'Sequential' in opset 20: the largest difference is ") and " in ONNX Runtime" in told and told.count("\n") == 1
    assert sl.onnx.convert_to_onnx_and_check(lambda x: {"sum": x.sum(1), "first": x[0]}, sl.arange(6).reshape(2, 3)) == 0
    assert "'<lambda>'" in capsys.readouterr().out


class Other(nn.Module):
    """Is another one while it is traced."""

    def forward(self, x):
        return x + (0.25 if sl.jit.is_tracing() else 0) * (x > 0)


def test_elements_that_differ_are_printed_and_an_error(capsys):
    x = sl.tensor([[1.0, -1.0, 2.0]])
    with pytest.raises(AssertionError, match=r"2 elements differ, one by 0\.25, output '.*' at \[0, 0\]: 1 here, 1\.25 in ONNX Runtime; must differ by at most"):
        sl.onnx.convert_to_onnx_and_check(Other(), x)
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 3 and all("differs by 0.25" in line for line in told[1:]) and "[0, 2]" in told[2]
    with pytest.raises(AssertionError):
        sl.onnx.convert_to_onnx_and_check(Other(), x, print_outlier=False)
    assert capsys.readouterr().out.count("\n") == 1
    with pytest.raises(AssertionError):
        sl.onnx.convert_to_onnx_and_check(Other(), sl.ones(5, 10))
    assert "  and 30 more" in capsys.readouterr().out
    assert sl.onnx.convert_to_onnx_and_check(Other(), x, atol=0.3) == pytest.approx(0.25)


def test_inputs_are_drawn_from_the_range(capsys):
    seen = []

    def watch(x, n):
        if not sl.jit.is_tracing():
            seen.append((x, n))
        return x * 2, n + 1

    given = (sl.zeros(200), sl.zeros(200, dtype=sl.int64))
    sl.onnx.convert_to_onnx_and_check(watch, given, input_tensor_range=(-3, 5))
    (x, n), = seen
    assert x.dtype == sl.float32 and n.dtype == sl.int64
    assert -3 <= x.min().item() < -2 and 4 < x.max().item() <= 5 and set(n.tolist()) == set(range(-3, 5))
    sl.onnx.convert_to_onnx_and_check(watch, given)
    assert not seen[1][0].any(), "without a range they are what was given"
    with pytest.raises(ValueError, match=r"input_tensor_range \(5, -3\); must be a number and a larger one"):
        sl.onnx.convert_to_onnx_and_check(watch, given, input_tensor_range=(5, -3))


def test_the_file_and_what_is_in_it(tmp_path):
    import onnx

    x = sl.randn(5, 4)
    sl.onnx.convert_to_onnx_and_check(small(), x, dynamic_batch_size=True, onnx_model_path=tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    sl.onnx.convert_to_onnx_and_check(small(), x, external_data=True, ort_optimize=False, onnx_model_path=tmp_path / "other.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "other.onnx", "other.onnx.data"]


class Graph(nn.Graph):
    def __init__(self):
        super().__init__(name="graph")
        self.net = small()

    def build(self, x):
        return self.net(x)


def test_a_graph_runs_as_a_graph(capsys):
    graph = Graph()
    assert sl.onnx.convert_to_onnx_and_check(graph, sl.randn(5, 4)) <= 1e-6
    assert graph.is_compiled and "onnx: 'graph' in opset" in capsys.readouterr().out


def test_what_is_missing_is_named(monkeypatch):
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(RuntimeError, match=r"device 'cuda.*must have CUDAExecutionProvider \(pip install onnxruntime-gpu\)"):
            sl.onnx.convert_to_onnx_and_check(small(), sl.ones(1, 4), device="cuda")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="needs the package onnxruntime, whose results it compares with: pip install onnxruntime"):
        sl.onnx.convert_to_onnx_and_check(small(), sl.ones(1, 4))


@pytest.fixture(scope="module")
def models():
    with both("models") as (ours, _):
        yield ours


def as_trained(net, images):
    """Its norms have the statistics of some images, and those that end a residual block small weights, as after a training: in a fresh
    net of a hundred layers, what has been rounded grows from block to block."""
    with sl.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 1.0
                if not module.weight.any():
                    module.weight.fill_(0.2)
        net.train()(images)
    return net.eval()


def small_vit(models):
    return models.VisionTransformer(image_size=64, patch_size=16, num_layers=3, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=40)


def small_vgg(models):
    """VGG's layers, narrow: its own classifier has a hundred million weights."""
    layers = models.vgg.make_layers([8, "M", 16, "M", 32, 32, "M"], batch_norm=True)
    classifier = nn.Linear(32 * 2 * 2, 64), nn.ReLU(True), nn.Dropout(), nn.Linear(64, 40)
    return nn.Sequential(layers, nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), *classifier)


SMALL = {"resnet18": lambda m: m.resnet18(num_classes=40, zero_init_residual=True), "mobilenet_v2": lambda m: m.mobilenet_v2(num_classes=40), "vgg": small_vgg, "vit": small_vit}
LARGE = {"resnet50": 64, "resnet101": 64, "vgg11": 64, "vgg16_bn": 64, "vit_b_16": 224}


@needs_torchvision
@pytest.mark.parametrize("name", SMALL)
def test_nets_are_within_1e_4_of_onnxruntime(models, name, capsys):  # ONX-02
    sl.manual_seed(0)
    net = as_trained(SMALL[name](models), sl.rand(4, 3, 64, 64))
    assert sl.onnx.convert_to_onnx_and_check(net, sl.rand(2, 3, 64, 64), input_tensor_range=(-1, 1)) <= 1e-4
    assert "the largest difference is " in capsys.readouterr().out


@needs_torchvision
@pytest.mark.soak
@pytest.mark.parametrize("name", LARGE)
def test_soak_whole_nets_are_within_1e_4_of_onnxruntime(models, name, repetitions, count):
    if not repetitions(0, 1):
        pytest.skip("a large net: in make test-long")
    sl.manual_seed(0)
    options = {"zero_init_residual": True} if name.startswith("resnet") else {}
    net = as_trained(models.get_model(name, **options), sl.rand(4, 3, LARGE[name], LARGE[name]))
    difference = sl.onnx.convert_to_onnx_and_check(net, sl.rand(1, 3, LARGE[name], LARGE[name]))
    assert difference <= 1e-4
    count(f"onnx: {name}", f"{difference:.3g}", "largest difference")
