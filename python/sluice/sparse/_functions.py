"""Functions of dense tensors that are called with a sparse one: torch.mm(sparse, x) is sparse.mm(x)."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice.sparse._tensor import SparseTensor

_REFLECTED = {"mm": "__rmatmul__", "matmul": "__rmatmul__", "mv": "__rmatmul__", "mul": "__rmul__", "multiply": "__rmul__", "add": "__radd__"}


def _sparse_in(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return next((found for one in value if (found := _sparse_in(one)) is not None), None)
    return value if issubclass(type(value), SparseTensor) else None


def of_function(form: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The method of that name of a sparse first argument, or what a dense one and a sparse one make; an error for all else."""
    name, rest = form.__name__, list(args)
    keywords = dict(keywords)
    if not rest and "input" in keywords:
        rest.append(keywords.pop("input"))
    own = getattr(type(rest[0]), name, None) if rest and _sparse_in(rest[0]) is rest[0] else None
    if own is not None:
        return own(*rest, **keywords)
    if len(rest) == 2 and not keywords and isinstance(rest[0], Tensor) and name in _REFLECTED and _sparse_in(rest[1]) is rest[1]:
        return getattr(rest[1], _REFLECTED[name])(rest[0])
    found = _sparse_in([*args, *keywords.values()])
    raise _C.TypeError(f"{name}: a sparse tensor of layout {found.layout}; must be dense: use to_dense(), values() where zeros stay zeros, or "
                       "sluice.sparse; docs/sparse.md lists what takes sparse tensors")


_C.register_stand_in(SparseTensor, of_function)
