"""Networks: torch.nn, and Graph."""

from sluice.nn import functional as functional, init as init, utils as utils
from sluice.nn.graph import Graph as Graph
from sluice.nn.modules import *  # noqa: F401,F403
from sluice.nn.parameter import (
    Buffer as Buffer, Parameter as Parameter, UninitializedBuffer as UninitializedBuffer,
    UninitializedParameter as UninitializedParameter)

import sluice.nn.attention as attention  # isort: skip  # after what modules call so

# OneFlow's, imported when they are first used.
_ONEFLOWS = {name: "sluice.nn.modules.oneflow" for name in (
    "CoinFlip", "CombinedMarginLoss", "CropMirrorNormalize", "FusedBatchNorm1d", "FusedBatchNorm2d", "FusedBatchNorm3d",
                                                            "FusedMLP")}
_ONEFLOWS.update({name: "sluice.nn.modules.quantization" for name in (
    "FakeQuantization", "MinMaxObserver", "MovingAverageMinMaxObserver", "QatConv1d", "QatConv2d", "QatConv3d",
                                                                      "Quantization")})


def __getattr__(name: str) -> object:
    if name == "parallel":  # needs sluice.distributed, which few programs do
        import importlib

        return importlib.import_module("sluice.nn.parallel")
    if name == "DataParallel":
        from sluice.nn.parallel import DataParallel

        return DataParallel
    place = _ONEFLOWS.get(name)
    if place is not None:
        import importlib

        return getattr(importlib.import_module(place), name)
    if name == "image":
        import importlib

        return importlib.import_module("sluice.nn.image")
    from sluice._left_out import missing

    raise missing("sluice.nn", name)
