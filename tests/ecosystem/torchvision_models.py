"""torchvision's models, each at a small size: classification, segmentation, detection, optical flow and video."""

from __future__ import annotations

import functools
from typing import Any, Sequence

import numpy as np

from ecosystem.beside import modules
from ecosystem.compare import STEPS, check

# The smallest of each of torchvision's files, and those in the others that are built in another way. Sizes are of images.
CASES: dict[str, int] = {
    "alexnet": 64, "convnext_tiny": 64, "densenet121": 64, "efficientnet_b0": 64, "efficientnet_v2_s": 64, "googlenet": 64, "inception_v3": 96,
    "maxvit_t": 224, "mnasnet0_5": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64, "regnet_x_400mf": 64, "regnet_y_400mf": 64, "resnet18": 64,
    "resnext50_32x4d": 64, "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64, "swin_t": 64, "swin_v2_t": 64, "vgg11_bn": 64, "vit_b_16": 224,
    "deeplabv3_mobilenet_v3_large": 64, "fcn_resnet50": 64, "lraspp_mobilenet_v3_large": 64,
    "fasterrcnn_mobilenet_v3_large_320_fpn": 128, "fcos_resnet50_fpn": 128, "keypointrcnn_resnet50_fpn": 128, "maskrcnn_resnet50_fpn": 128,
    "retinanet_resnet50_fpn": 128, "ssd300_vgg16": 128, "ssdlite320_mobilenet_v3_large": 128,
    "raft_small": 128, "mvit_v1_b": 224, "r3d_18": 32, "s3d": 224, "swin3d_t": 64,
}
DETECTION = ("rcnn", "fcos", "retinanet", "ssd")
VIDEO = {"mvit_v1_b": 16, "r3d_18": 4, "s3d": 16, "swin3d_t": 4}  # frames


@functools.cache
def both() -> tuple[Any, Any]:
    return modules("torchvision.models")


def inputs_of(name: str, batch: int) -> tuple[Any, ...]:
    draw, size = np.random.default_rng(1), CASES[name]
    shape = (batch, 3, VIDEO[name], size, size) if name in VIDEO else (batch, 3, size, size)
    images = draw.random(size=shape).astype(np.float32)
    if any(kind in name for kind in DETECTION):
        return (list(images),)
    return (images, draw.random(size=shape).astype(np.float32)) if name == "raft_small" else (images,)


def options_of(name: str) -> dict[str, Any]:
    """Of a model with weights that are drawn."""
    options: dict[str, Any] = {"weights": None}
    if any(kind in name for kind in DETECTION) or "_resnet50" in name or name.startswith(("deeplab", "lraspp")):
        options["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    if any(kind in name for kind in DETECTION):
        options["num_classes"] = 5
        if not name.startswith("ssd"):  # whose size is fixed
            options |= {"min_size": CASES[name], "max_size": CASES[name]}
    return options


def run(name: str, batch: int = 2, seconds: int = 400, steps: Sequence[str] = STEPS) -> dict[str, str]:
    made = [lambda lib=lib: lib.get_model(name, **options_of(name)) for lib in both()]
    return check(*made, inputs_of(name, batch), seconds=seconds, steps=steps)
