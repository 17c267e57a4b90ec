"""DataParallel: one process, one device."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C, cuda
from sluice.nn.modules.module import Module


def _one_device(device_ids: Any) -> Any:
    """The GPU to compute on, or None: where the module is."""
    count = cuda.device_count()
    ids = list(range(count)) if device_ids is None else list(device_ids) if count else []
    if len(ids) > 1:
        raise _C.NotImplementedError(f"DataParallel: device_ids are {ids}; one process computes on one device here: use "
                                     "nn.parallel.DistributedDataParallel with a process for each, or an nn.Graph of global "
                                     "tensors")
    return ids[0] if ids else None


class DataParallel(Module):
    """The module, called on its device: torch.nn.DataParallel of one GPU or none. With several it is refused.

    Its parameters have the names of torch's ("module.weight"), so state dicts fit.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        device = _one_device(device_ids)
        self.dim, self.module, self.device_ids = dim, module, [] if device is None else [device]
        self.output_device = device if output_device is None else output_device
        if device is not None:
            self.module.to(f"cuda:{device}" if isinstance(device, Integral) else device)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0,
                  module_kwargs: Any = None) -> Any:
    """module(*inputs, **module_kwargs), on one device; torch.nn.parallel.data_parallel."""
    _one_device(device_ids)
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return module(*inputs, **(module_kwargs or {}))
