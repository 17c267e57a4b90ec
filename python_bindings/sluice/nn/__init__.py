"""Networks: torch.nn, and Graph."""

from sluice.nn import attention as attention, functional as functional, init as init, utils as utils
from sluice.nn.graph import Graph as Graph
from sluice.nn.modules import *  # noqa: F401,F403
from sluice.nn.parameter import (
    Buffer as Buffer, Parameter as Parameter, UninitializedBuffer as UninitializedBuffer,
    UninitializedParameter as UninitializedParameter)


def __getattr__(name: str) -> object:
    if name == "parallel":  # needs sluice.distributed, which few programs do
        import importlib

        return importlib.import_module("sluice.nn.parallel")
    if name == "DataParallel":
        from sluice.nn.parallel import DataParallel

        return DataParallel
    from sluice._left_out import missing

    raise missing("sluice.nn", name)
