"""Top-level functions that are not of tensors. Those of tensors are forms: graph/forms."""

from __future__ import annotations

from numbers import Integral
from operator import index
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._base.size import Size


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of these shapes broadcast to; torch.broadcast_shapes."""
    for shape in shapes:
        if not isinstance(shape, (int, list, tuple, str, type(None))):
            raise RuntimeError("broadcast_shapes: Input shapes should be of type ints, a tuple of ints, or a list of ints, got "
                               f"{shape}")
    shapes = [(shape,) if isinstance(shape, Integral) else tuple(map(index, shape or ())) for shape in shapes]
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for i, d in enumerate(shape, rank - len(shape)):
            if d < 0:
                raise _C.ValueError(f"broadcast_shapes: negative dim: {shape}; dims must be >= 0")
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


def typename(obj: Any) -> str:
    """The class of an object with its module, or 'torch.FloatTensor' of a tensor; torch.typename."""
    if isinstance(obj, Tensor):
        return obj.type()
    cls = obj if isinstance(obj, type) else type(obj)
    return cls.__qualname__ if cls.__module__ in ("", "builtins") else f"{cls.__module__}.{cls.__qualname__}"
