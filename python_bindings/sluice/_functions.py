"""Top-level functions: those that are a Tensor method called on their first argument, and the others.

Torch names several of them as Python names its builtins. Those are no globals of this module, where its own code would
find them in place of the builtins, but entries of PUBLIC, which the module hands out as its attributes.
"""

from __future__ import annotations

from sluice import _C
from sluice._C import Tensor, fn
from sluice._size import Size

# Functions that are a method called on their first argument.
METHODS = """absolute add addcdiv addcmul addmm all allclose amax amin any argmax argmin argsort bitwise_not bmm
chunk clamp clamp_max clamp_min clip clone cumsum detach div divide dot equal erfinv flatten gather greater heaviside
index_add index_select isclose isfinite lerp less log_softmax logsumexp masked_fill masked_select matmul max mean min
mm movedim multiply mv narrow negative nonzero norm not_equal numel outer pow prod relu reshape roll scatter
scatter_add select sigmoid softmax sort split square squeeze std sub subtract sum swapaxes swapdims t take_along_dim
topk transpose tril triu true_divide unbind unflatten unsqueeze var""".split() + fn._elementwise


def _call(name):
    method = getattr(Tensor, name)

    def function(input, *args, **kwargs):
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(input).__name__}")
        return method(input, *args, **kwargs)

    function.__name__ = name
    function.__doc__ = method.__doc__
    return function


def _pow(input, exponent):
    return input.pow(exponent) if isinstance(input, Tensor) else exponent.__rpow__(input)


PUBLIC = {**{name: _call(name) for name in METHODS}, "pow": _pow}


def __getattr__(name):
    if name in PUBLIC:
        return PUBLIC[name]
    raise AttributeError(f"module 'sluice._functions' has no attribute '{name}'")


def polygamma(n, input):
    return fn.polygamma(n, input)


def cat(tensors, dim=0):
    return fn.cat(list(tensors), dim)


concat = concatenate = cat


def stack(tensors, dim=0):
    return fn.stack(list(tensors), dim)


def hstack(tensors):
    tensors = [t.unsqueeze(0) if t.ndim == 0 else t for t in tensors]
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


def vstack(tensors):
    return cat([t.reshape(1, -1) if t.ndim <= 1 else t for t in tensors], 0)


def where(condition, input=None, other=None) -> Any:
    if input is None:
        return condition.nonzero(as_tuple=True)
    return fn.where(condition.bool() if condition.dtype is _C.uint8 else condition, input, other)


def permute(input, dims):
    return fn.permute(input, dims)


def broadcast_to(input, size):
    return fn.expand(input, size)


def broadcast_shapes(*shapes) -> Any:
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


def broadcast_tensors(*tensors) -> tuple[Tensor, ...]:
    shape = broadcast_shapes(*(t._shape for t in tensors))
    return tuple(fn.expand(t, shape) for t in tensors)


def flip(input, dims):
    return fn.flip(input, dims)


def tile(input, dims):
    return fn.tile(input, dims)


def meshgrid(*tensors, indexing="ij") -> tuple[Tensor, ...]:
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing is {indexing!r}; must be 'ij' or 'xy'")
    shape = [t.numel() for t in tensors]
    grids = []
    for i, t in enumerate(tensors):
        view = [1] * len(shape)
        view[i] = shape[i]
        grids.append(fn.expand(t.reshape(view), shape))
    return tuple(g.transpose(0, 1) if indexing == "xy" and len(shape) > 1 else g for g in grids)


def is_tensor(obj) -> bool:
    return isinstance(obj, Tensor)


def is_floating_point(input) -> bool:
    return input.dtype.is_floating_point


def set_num_threads(threads) -> None:
    _C.set_num_threads(threads)


def get_num_threads() -> int:
    return _C.get_num_threads()


__all__ = [*PUBLIC, *(name for name, member in list(globals().items()) if callable(member) and not name.startswith("_"))]
