"""torch.linalg: linear algebra on float32, float64 and complex tensors; the last two dims are matrices, the others batches."""

from sluice._C import LinAlgError as LinAlgError
from sluice._C.linalg import *  # noqa: F403


def __getattr__(name):
    from sluice._names.left_out import missing

    raise missing("sluice.linalg", name)
