"""torch.utils.tensorboard: by tensorboardX, which writes the same event files."""

from __future__ import annotations

import functools
from typing import Any

from sluice import _C
from sluice._C import Tensor

try:
    import tensorboardX
except ImportError as error:
    raise ImportError("utils.tensorboard: SummaryWriter needs the package tensorboardX: pip install tensorboardX") from error


def _arrays(value: Any) -> Any:
    """Tensors as arrays, in lists and dicts too."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype is _C.bfloat16 else value).numpy()
    if isinstance(value, dict):
        return {key: _arrays(v) for key, v in value.items()}
    return type(value)(map(_arrays, value)) if type(value) in (list, tuple) else value


class SummaryWriter(tensorboardX.SummaryWriter):  # type: ignore[misc]
    """tensorboardX.SummaryWriter, whose add_... methods take tensors of Sluice, too. add_graph is not supported."""

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        if not name.startswith("add_"):
            return attribute
        if name in ("add_graph", "add_onnx_graph", "add_openvino_graph"):
            raise NotImplementedError(f"SummaryWriter.{name}: is not supported; sluice.lower(f, x) shows a graph")

        @functools.wraps(attribute)
        def add(*args: Any, **kwargs: Any) -> Any:
            return attribute(*map(_arrays, args), **_arrays(kwargs))

        return add
