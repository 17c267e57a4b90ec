"""One test over the zoo: every model of timm's files and of torchvision computes on Sluice; detection is torchvision's."""

import functools

import numpy as np
import pytest

import sluice as sl
from ecosystem import beside, compare, timm_models, torchvision_models

pytestmark = pytest.mark.skipif(not beside.INSTALLED, reason="the packages do not lie beside the environment: tools/setup.sh puts them there")
TIMM = timm_models.cases()
ZOO = [*(("timm", file) for file in TIMM), *(("torchvision", name) for name in torchvision_models.CASES)]


@functools.cache
def package(name):
    return beside.modules("timm" if name == "timm" else "torchvision.models")[0]


def made(zoo, case):
    """The model and its arguments, of one image."""
    if zoo == "timm":
        model, size, options = TIMM[case]
        net = package("timm").create_model(model, num_classes=10, **eval(f"dict({options})"))  # our own table
        channels, *usual = package("timm").get_pretrained_cfg(model).input_size
        return net, (sl.randn(1, channels, *((size, size) if size else usual)),)
    net = package("torchvision").get_model(case, **torchvision_models.options_of(case))
    return net, compare.on(sl, torchvision_models.inputs_of(case, 1))


@pytest.mark.parametrize("zoo,case", ZOO, ids=[f"{zoo}-{case}" for zoo, case in ZOO])
def test_every_model_computes(zoo, case):  # FV-12
    net, arguments = made(zoo, case)
    with sl.no_grad():
        results = compare.tensors_of(net.eval()(*arguments))
    assert results and all(np.isfinite(t.numpy()).all() for t in results)
    assert zoo != "timm" or results[0].shape[0] == 1


@pytest.mark.parametrize("case", ["ssd300_vgg16", "retinanet_resnet50_fpn", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"])
def test_detection_and_segmentation_are_torchs(case):  # FV-07: SSD's backbone normalizes with F.normalize
    assert torchvision_models.run(case, batch=1, steps=("forward",))["forward"] == ""


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_nms_is_torchvisions(threshold):  # FV-07
    ours, theirs = beside.modules("torchvision.ops")
    draw = np.random.default_rng(int(threshold * 10))
    corners = draw.integers(0, 40, (200, 2)).astype(np.float32)
    boxes, scores = np.concatenate([corners, corners + draw.integers(1, 30, (200, 2))], 1).astype(np.float32), draw.random(200).astype(np.float32)
    import torch

    got = ours.nms(sl.from_numpy(boxes.copy()), sl.from_numpy(scores.copy()), threshold)
    assert got.tolist() == theirs.nms(torch.from_numpy(boxes), torch.from_numpy(scores), threshold).tolist()
    groups = draw.integers(0, 3, 200)
    batched = ours.batched_nms(sl.from_numpy(boxes.copy()), sl.from_numpy(scores.copy()), sl.from_numpy(groups.copy()), threshold)
    assert batched.tolist() == theirs.batched_nms(torch.from_numpy(boxes), torch.from_numpy(scores), torch.from_numpy(groups), threshold).tolist()
