"""Top-level functions that are not of tensors. Those of tensors are forms: graph/forms."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._size import Size


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of these shapes broadcast to; torch.broadcast_shapes."""
    shapes = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for i, d in enumerate(shape, rank - len(shape)):
            if d < 0:
                raise ValueError(f"broadcast_shapes: negative dim: {shape}; dims must be >= 0")
            if d != 1:
                if result[i] not in (1, d):
                    raise RuntimeError(f"broadcast_shapes: shapes {shapes} do not broadcast at dim {i - rank}; sizes must be equal or 1")
                result[i] = d
    return Size(result)


def is_tensor(obj: Any) -> bool:
    return isinstance(obj, Tensor)


def set_num_threads(threads: int) -> None:
    _C.set_num_threads(threads)


def get_num_threads() -> int:
    return _C.get_num_threads()
