"""Networks: torch.nn, and Graph."""

from typing import TYPE_CHECKING

from sluice.nn import functional as functional, init as init, utils as utils
from sluice.nn.modules import *  # noqa: F401,F403
from sluice.nn.modules.module import Module as Module
from sluice.nn.parameter import (
    Buffer as Buffer, Parameter as Parameter, UninitializedBuffer as UninitializedBuffer,
    UninitializedParameter as UninitializedParameter)

import sluice.nn.attention as attention  # isort: skip  # after what modules call so

if TYPE_CHECKING:
    from sluice.nn.graph import Graph as Graph

# OneFlow's, imported when they are first used.
_ONEFLOWS = {name: "sluice.nn.modules.oneflow" for name in (
    "CoinFlip", "CombinedMarginLoss", "CropMirrorNormalize", "FusedBatchNorm1d", "FusedBatchNorm2d", "FusedBatchNorm3d",
                                                            "FusedMLP")}
_ONEFLOWS.update({name: "sluice.nn.modules.quantization" for name in (
    "FakeQuantization", "MinMaxObserver", "MovingAverageMinMaxObserver", "QatConv1d", "QatConv2d", "QatConv3d",
                                                                      "Quantization")})


def _compile(self: Module, *args: object, **kwargs: object) -> None:
    """From now on calls of this module are compiled, in place: arguments as of sluice.compile. Copies and pickles of it are not."""
    from sluice._compile import compile_in_place

    compile_in_place(self, *args, **kwargs)  # type: ignore[arg-type]


_compile.__name__, _compile.__qualname__ = "compile", "Module.compile"
Module.compile = _compile  # type: ignore[method-assign]


def __getattr__(name: str) -> object:
    if name in ("Graph", "graph"):  # stands on all of this module, and is imported when it is first used
        from sluice.nn.graph import Graph

        globals()["Graph"] = Graph  # the import itself has set `graph`
        return globals()[name]
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
    from sluice._names.left_out import missing

    raise missing("sluice.nn", name)


__all__ = [*(name for name in globals() if not name.startswith("_") and name != "TYPE_CHECKING"), "Graph"]  # noqa: F405, PLE0604


def __dir__() -> list[str]:
    return sorted({*globals(), "Graph", "graph"} - {"TYPE_CHECKING"})
