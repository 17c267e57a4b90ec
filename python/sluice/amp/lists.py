"""Lists that say what mixed precision does with the arguments of each function: to be looked at and changed.

    sluice.amp.lists.lower.discard("linear")     # from now on linear computes in the dtype of its arguments
    sluice.amp.lists.float32.add("tanh")

They begin as torch's lists for the CPU. A name is a function's, whatever it is called by: "matmul" is also `x @ y`. Functions that
are in no list compute in the dtype of their arguments. Eager operations and graphs, while they are traced, follow the same lists.
`sluice.amp.lists()` gives all three by name.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator, MutableSet

from sluice import _C

__all__ = ["float32", "lower", "widest"]


class _Names(MutableSet[str]):
    def __init__(self, policy: int, doc: str, names: str) -> None:
        self._policy, self.__doc__, self._names = policy, doc, set[str]()
        for name in names.split():
            self._set(name)

    def _set(self, name: str) -> None:
        if not _C.set_autocast_policy(name, self._policy):
            raise ValueError(f"amp.lists: there is no function {name!r}; a name is one of `python -m sluice.info --functions`")
        self._names.add(name)

    def add(self, name: str) -> None:
        self._set(name)
        for other in (lower, float32, widest):
            if other is not self:
                other._names.discard(name)

    def discard(self, name: str) -> None:
        if name in self._names:
            _C.set_autocast_policy(name, 0)
            self._names.discard(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    @classmethod
    def _from_iterable(cls, names: Iterable[str]) -> set[str]:  # type: ignore[override]
        return set(names)

    def __repr__(self) -> str:
        return f"{{{', '.join(self)}}}"


lower = _Names(1, "Products: they run in the dtype of the region.", """
    matmul mm bmm addmm baddbmm addbmm linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d einsum
    inner multi_dot matrix_power vecdot""")
float32 = _Names(2, "What needs range or adds many numbers: it runs in float32.", """
    prod trace quantile nanquantile cdist grid_sample inv inverse cholesky svdvals cond
    avg_pool3d max_pool3d adaptive_avg_pool3d adaptive_max_pool3d
    binary_cross_entropy binary_cross_entropy_with_logits cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div
    cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multilabel_margin_loss multi_margin_loss soft_margin_loss
    triplet_margin_loss poisson_nll_loss ctc_loss""")
widest = _Names(3, "What takes several tensors of one dtype: the widest of theirs.", "cat stack")


class _Lists(types.ModuleType):
    def __call__(self) -> dict[str, _Names]:
        return {"lower": lower, "float32": float32, "widest": widest}


sys.modules[__name__].__class__ = _Lists
