"""torch.linalg: linear algebra on float32 and float64 tensors; the last two dims are matrices, the others batches."""

from sluice._C import LinAlgError as LinAlgError
from sluice._C.linalg import *  # noqa: F403

_INSTEAD = {"ldl_factor": "lu_factor() or cholesky()", "ldl_factor_ex": "lu_factor_ex() or cholesky_ex()",
            "ldl_solve": "solve() or lu_solve()"}


def __getattr__(name):
    if name in _INSTEAD:
        raise AttributeError(f"sluice.linalg has no {name}(); use {_INSTEAD[name]}")
    raise AttributeError(f"module 'sluice.linalg' has no attribute '{name}'")
