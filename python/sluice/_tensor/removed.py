"""Functions that torch has removed, with the errors that say what to use instead; and lu(), which it has deprecated."""

from __future__ import annotations

from typing import Any

from sluice import linalg
from sluice._C import Tensor
from sluice._tensor.creation import _finish

_INSTEAD = {
    "eig": "`torch.linalg.eig` returns complex tensors; of symmetric matrices use torch.linalg.eigh",
    "lstsq": "Use `torch.linalg.lstsq(A, B).solution`, whose arguments are in the other order",
    "matrix_rank": "Please use the `torch.linalg.matrix_rank` function instead; 'symmetric' is now 'hermitian'",
    "solve": "Use `torch.linalg.solve(A, B)`, whose arguments are in the other order",
    "symeig": "Use `torch.linalg.eigh(A, UPLO='U' if upper else 'L')`, or eigvalsh without vectors",
}


def _removed(name: str) -> Any:
    def removed(*args, **kwargs):
        raise RuntimeError(f"{name}: This function was deprecated since version 1.9 and is now removed. {_INSTEAD[name]}.")

    removed.__name__ = removed.__qualname__ = name
    removed.__doc__ = f"Removed, as in torch. {_INSTEAD[name]}."
    return removed


eig, lstsq, matrix_rank, solve, symeig = map(_removed, _INSTEAD)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """linalg.lu_factor(A), or with get_infos linalg.lu_factor_ex(A), by its older name. torch.lu."""
    result = tuple(linalg.lu_factor_ex(A, pivot=pivot) if get_infos else linalg.lu_factor(A, pivot=pivot))
    if out is None:
        return result
    if len(out) != len(result):
        raise TypeError(f"expected tuple of {len(result)} elements but got {len(out)}")
    for target, value in zip(out, result):
        _finish(value, None, False, target)
    return out
