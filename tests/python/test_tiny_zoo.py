"""Small nets of torchvision and timm, as integers: steps of training have the same bits in the engine, in C under sanitizers, and in qemu."""

import functools
import importlib
import pathlib
import sys

import pytest

import sluice as sl
from sluice.tiny import TrainStep, quantize
from test_tiny import STRICT, arm, check

BESIDE = [pathlib.Path(__file__).resolve().parents[2] / ".venv" / name for name in ("ecosystem", "torchvision")]
pytestmark = pytest.mark.skipif(not all(folder.is_dir() for folder in BESIDE), reason="the packages do not lie beside the environment")
CLASSES, SIDE, STEPS = 4, 32, 3


@pytest.fixture(scope="module")
def models():
    """torchvision.models and timm.models on Sluice."""
    with pytest.MonkeyPatch.context() as patch:
        ecosystem, torchvision = map(str, BESIDE)
        patch.setattr(sys, "path", [torchvision, *sys.path, ecosystem])  # what both have is the environment's, as for other tests
        with sl.mock_torch(lazy=True):
            ours = [importlib.import_module(f"{name}.models") for name in ("torchvision", "timm")]
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


def timm_resnet(timm):
    return timm.resnet.ResNet(timm.resnet.BasicBlock, (1, 1, 1, 1), CLASSES, channels=(8, 8, 16, 16), stem_width=8)


def timm_repvgg(timm):
    byob = timm.byobnet
    blocks = tuple(byob.ByoBlockCfg(type="rep", d=1, c=c, s=2, gs=0) for c in (8, 16))
    return byob.ByobNet(byob.ByoModelCfg(blocks=blocks, stem_type="rep", stem_chs=8), CLASSES)


TIMM = [timm_resnet, timm_repvgg]
NETS = [regnet, mobilenet_v2, densenet, mobilenet_v3, shufflenet_v2, efficientnet, *TIMM]


def exported(models, net, directory):
    """A folder with steps in which everything is trained."""
    sl.manual_seed(0)
    made = net(models[net in TIMM]).eval()
    for module in made.modules():
        if isinstance(module, sl.nn.BatchNorm2d):  # as if trained
            module.running_mean.copy_(sl.randn(module.num_features) * 0.1)
            module.running_var.copy_(sl.rand(module.num_features) + 0.5)
    samples = [(sl.randn(1, 3, SIDE, SIDE), sl.tensor([i % CLASSES])) for i in range(STEPS)]
    step = TrainStep(quantize(made, [x for x, _ in samples]), lr=0.01)
    step.compile(*samples[0])
    return sl.tiny.export(step, directory, name="net", samples=samples)


@pytest.mark.soak
def test_soak_nets_train_with_the_engines_bits(models, repetitions, count, tmp_path):
    nets = NETS[:repetitions(1, len(NETS))]
    for net in nets:
        made = exported(models, net, tmp_path / net.__name__)
        assert check(made.directory, "sanitized", f"CFLAGS={STRICT} -O1") == STEPS
        count(f"bytes of RAM of a step of {net.__name__}", made.memory + made.state, f"{made.constants} that stay")
    count("nets trained as integers in C", len(nets), [net.__name__ for net in nets])


@arm
@pytest.mark.parametrize("net", NETS)
def test_a_net_trains_on_a_microcontroller(models, tmp_path, net):
    assert check(exported(models, net, tmp_path).directory, "run-cortex-m4") == STEPS
