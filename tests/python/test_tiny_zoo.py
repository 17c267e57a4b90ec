"""Small nets of torchvision, as integers: steps of training have the same bits in the engine, in C under sanitizers, and in qemu."""

import functools
import importlib.util
import pathlib

import pytest

import sluice as sl
from sluice.tiny import TrainStep, quantize
from test_tiny import STRICT, arm, check

BESIDE = pathlib.Path(__file__).resolve().parents[2] / ".venv/torchvision"
INSTALLED = importlib.util.find_spec("torchvision") is not None
pytestmark = pytest.mark.skipif(not INSTALLED and not BESIDE.is_dir(), reason="torchvision is not installed")
CLASSES, SIDE, STEPS = 4, 32, 3


@pytest.fixture(scope="module")
def models():
    """torchvision.models on Sluice."""
    with pytest.MonkeyPatch.context() as patch:
        if not INSTALLED:
            patch.syspath_prepend(str(BESIDE))
        with sl.mock_torch():
            from torchvision import models as ours
        yield ours


def mobilenet_v2(m):
    blocks = [[1, 8, 1, 1], [3, 8, 1, 2], [3, 16, 2, 2]]
    return m.MobileNetV2(CLASSES, width_mult=0.1, inverted_residual_setting=blocks, dropout=0.0)


def mobilenet_v3(m):
    block = functools.partial(m.mobilenetv3.InvertedResidualConfig, dilation=1, width_mult=1.0)
    return m.MobileNetV3([block(8, 3, 8, 8, True, "RE", 2), block(8, 5, 16, 16, True, "HS", 2)], 32, CLASSES, dropout=0.0)


def shufflenet_v2(m):
    return m.ShuffleNetV2([1, 1, 1], [8, 16, 16, 16, 32], CLASSES)


def densenet(m):
    return m.DenseNet(4, (2, 2), 8, bn_size=2, num_classes=CLASSES)


def efficientnet(m):
    block = functools.partial(m.efficientnet.MBConvConfig, width_mult=1.0, depth_mult=1.0)
    return m.EfficientNet([block(1, 3, 1, 8, 8, 1), block(3, 3, 2, 8, 16, 1)], 0.0, num_classes=CLASSES, last_channel=32)


def regnet(m):
    return m.RegNet(m.regnet.BlockParams.from_init_params(depth=3, w_0=8, w_a=8, w_m=2, group_width=8), CLASSES)


NETS = [regnet, mobilenet_v2, densenet, mobilenet_v3, shufflenet_v2, efficientnet]


def exported(models, net, directory):
    """A folder with steps in which everything is trained."""
    sl.manual_seed(0)
    made = net(models).eval()
    for module in made.modules():
        if isinstance(module, sl.nn.BatchNorm2d):  # as if trained
            module.running_mean.copy_(sl.randn(module.num_features) * 0.1)
            module.running_var.copy_(sl.rand(module.num_features) + 0.5)
    samples = [(sl.randn(1, 3, SIDE, SIDE), sl.tensor([i % CLASSES])) for i in range(STEPS)]
    step = TrainStep(quantize(made, [x for x, _ in samples]), lr=0.01)
    step.compile(*samples[0])
    return sl.tiny.export(step, directory, name="net", samples=samples)


@pytest.mark.soak
def test_soak_nets_of_torchvision_train_with_the_engines_bits(models, repetitions, count, tmp_path):
    nets = NETS[:repetitions(1, len(NETS))]
    for net in nets:
        made = exported(models, net, tmp_path / net.__name__)
        assert check(made.directory, "sanitized", f"CFLAGS={STRICT} -O1") == STEPS
        count(f"bytes of RAM of a step of {net.__name__}", made.memory + made.state, f"{made.constants} that stay")
    count("nets of torchvision trained as integers in C", len(nets), [net.__name__ for net in nets])


@arm
def test_a_net_of_torchvision_trains_on_a_microcontroller(models, tmp_path):
    assert check(exported(models, regnet, tmp_path).directory, "run-cortex-m4") == STEPS
