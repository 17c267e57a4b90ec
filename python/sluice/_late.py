"""What the root and Tensor have of modules that are imported when they are first used: methods that higher floors compute, and the
modules of kinds of devices. So the import of Sluice stays short."""

from __future__ import annotations

import importlib
from typing import Any

from sluice._base.device import device as _Device, get_default_device
from sluice._base.device_module import DeviceModule
from sluice._C import Tensor
from sluice._tensor.methods import method
from sluice.autograd import passes


def _late(place: str, name: str, doc: str) -> None:
    """Makes the function `name` of the module `place` a method."""

    def late(self, *args, **options):
        return getattr(importlib.import_module(place), name)(self, *args, **options)

    late.__name__ = late.__qualname__ = name
    late.__doc__ = doc
    setattr(Tensor, name, late)


for _place, _names in (
        ("_tensor.aliases", "as_strided_scatter"), ("_tensor.removed", "eig lstsq lu solve symeig"),
        ("_tensor.lowrank", "geqrf ormqr"), ("_tensor.histograms", "histogram"), ("_tensor.detection", "nms"),
        ("global_view", "global_to_global local_to_global")):
    for _name in _names.split():
        _late(f"sluice.{_place}", _name, f"sluice.{_name}(self, ...); torch.Tensor.{_name}.")
for _name in "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc sparse_mask".split():
    _late("sluice.sparse._make", _name, f"This tensor, sparse; torch.Tensor.{_name}.")
for _name in "prelu hardshrink gelu mish selu silu softplus softsign".split():
    _late("sluice.nn.functional", _name, f"F.{_name} of this tensor.")
for _name in "kaiming_normal_ kaiming_uniform_ xavier_normal_ xavier_uniform_ trunc_normal_ orthogonal_".split():
    _late("sluice.nn.init", _name, f"sluice.nn.init.{_name} of this tensor.")


@method
def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None) -> None:
    passes.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


@method
def is_shared(self: Any) -> bool:
    """Whether the data lies in memory that share_memory_() has made."""
    from sluice.multiprocessing import _reductions

    return _reductions.segment_of(self) is not None


@method
def share_memory_(self: Any) -> Any:
    """Moves the data to shared memory: of those that get the tensor by sluice.multiprocessing, and of children of fork()."""
    from sluice.multiprocessing import _reductions

    return _reductions.share_memory(self)


_modules: dict[str, Any] = {}


def get_device_module(device: Any = None) -> Any:
    """What torch has a module for: `sluice.cuda`, or the like of it for another kind; torch.get_device_module.

    device: its name or object, of which the kind counts; None: the default device's.
    """
    kind = _Device(get_default_device() if device is None else device).type
    if kind == "cuda":
        from sluice import cuda

        return cuda
    return _modules.setdefault(kind, DeviceModule(kind))
