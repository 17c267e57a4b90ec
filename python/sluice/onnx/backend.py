"""Sluice as a backend of ONNX's own runner: `onnx.backend.test.BackendTest(sluice.onnx.backend, __name__)`.

    rep = sluice.onnx.backend.prepare(model)         # a ModelProto
    outputs = rep.run([x])                           # NumPy arrays
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from sluice._base.grad_mode import no_grad
from sluice._C import Tensor, bfloat16, int16
from sluice._tensor.creation import from_numpy as _tensor_of
from sluice.onnx._module import OnnxModule

__all__ = ["SluiceBackend", "SluiceRep", "from_numpy", "prepare", "run_model", "run_node", "supports_device", "to_numpy"]


def from_numpy(value: Any) -> Any:
    """A tensor of an array, a TensorProto, or a list of those; bfloat16 too, which NumPy has by ml_dtypes."""
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, (list, tuple)):
        return [from_numpy(v) for v in value]
    array = np.array(numpy_helper.to_array(value) if isinstance(value, TensorProto) else value)
    if array.dtype.name == "bfloat16":
        return _tensor_of(array.view(np.int16)).view(bfloat16)
    return _tensor_of(array)


def to_numpy(value: Any) -> Any:
    """The array of a tensor, or a list of them."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [to_numpy(v) for v in value]
    tensor = value.detach()
    if tensor.dtype == bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


class SluiceRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, module: OnnxModule):
        self.module = module
        self._outputs = namedtupledict("Outputs", [p.name for p in module.outputs])

    def run(self, inputs: Any, **kwargs: Any) -> Any:
        """inputs: the arrays in the model's order, or by name; one alone may stand for itself."""
        if isinstance(inputs, dict):
            given, by_name = [], {name: from_numpy(v) for name, v in inputs.items()}
        else:
            given, by_name = [from_numpy(v) for v in (inputs if isinstance(inputs, (list, tuple)) else [inputs])], {}
        with no_grad():
            made = self.module(*given, **by_name)
        return self._outputs(*[to_numpy(v) for v in (made if isinstance(made, tuple) else (made,))])


class SluiceBackend(Backend):
    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        try:
            OnnxModule(model)
        except (RuntimeError, TypeError, ValueError):
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> SluiceRep:
        super().prepare(model, device, **kwargs)
        return SluiceRep(OnnxModule(model))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


prepare = SluiceBackend.prepare
run_model = SluiceBackend.run_model
run_node = SluiceBackend.run_node
supports_device = SluiceBackend.supports_device
