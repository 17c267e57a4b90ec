"""Experts on the ranks of a job, in eager code: blocks of tokens go to the ranks that have their experts, and come back."""

from __future__ import annotations

from typing import Any, Callable

from sluice import distributed as dist
from sluice._C import Tensor, fn
from sluice._base.job import state
from sluice._tensor.creation import empty_like, zeros
from sluice.autograd import Function
from sluice.errors import ValueError  # noqa: A004


class _Exchange(Function):
    """Part r along dim 0 goes to rank r, and part r of the result comes from it; so do gradients, on their way back."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor) -> Tensor:
        parts = parts.contiguous()
        came = empty_like(parts)
        dist.all_to_all_single(came, parts)
        return came

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return _Exchange.apply(grad)


class _Averaged(Function):
    """The same values, with gradients divided by `n`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, n: int) -> Tensor:
        ctx.n = n
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad / ctx.n, None


def _filled(x: Tensor, dim: int, size: int) -> Tensor:
    """x, with zeros behind it until `dim` has this size."""
    missing = size - x._shape[dim]
    if not missing:
        return x
    return fn.cat([x, zeros(*(missing if i == dim else n for i, n in enumerate(x._shape)), dtype=x.dtype)], dim)


class Ranks:
    """The ranks of the job, of which each has its share of the experts: the first ones have one more where shares are uneven."""

    def __init__(self, rank: int, shares: list[int]) -> None:
        self.rank, self.shares = rank, shares
        self.starts = [sum(shares[:r]) for r in range(len(shares))]
        self.groups: list[int] = []  # of each rank, in the call under way

    @staticmethod
    def of(size: int, experts: int) -> Ranks | None:
        """None for a size of 1: this process has all of them."""
        if size == 1:
            return None
        world = state.world
        if world is None or world.size != size:
            there = "1 process; see sluice.distributed.init()" if world is None else f"{world.size} ranks"
            raise ValueError(f"MoE: ep_size is {size}; must be 1, or the number of ranks: the job has {there}")
        if experts < size:
            raise ValueError(f"MoE: {experts} experts for {size} ranks; each must get one")
        return Ranks(world.rank, [experts // size + (r < experts % size) for r in range(size)])

    def own(self, experts: Tensor) -> Tensor:
        return experts.narrow(0, self.starts[self.rank], self.shares[self.rank]).contiguous()

    def check(self, x: Tensor, layer: str) -> None:
        """All ranks call the same layer, with groups of the same kind. A difference is the same error on every rank."""
        shape = tuple(x._shape) if x.ndim == 3 else (1, *x._shape)
        text = f"{layer}\n{x.dtype.name} groups of {shape[1:]}\n{shape[0]}"
        texts = [text.split("\n") for text in state.run("MoE", False, lambda world: world.all_gather_text(text))]
        for rank, found in enumerate(texts):
            for ours, theirs in zip(texts[0][:2], found[:2]):
                if ours != theirs:
                    raise ValueError(f"MoE: rank 0 has {ours}, rank {rank} has {theirs}; must be the same on all ranks")
        self.groups = [int(found[2]) for found in texts]

    def averaged(self, weight: Tensor) -> Tensor:
        return _Averaged.apply(weight, len(self.shares))

    def exchanged(self, sent: Tensor, experts: Callable[[Tensor], Tensor]) -> Tensor:
        """experts() of a block (groups, experts, places, hidden), each on its rank. Blocks have the size of the largest one."""
        groups, n, most, own = sent._shape[0], len(self.shares), max(self.groups), self.shares[self.rank]
        rest = tuple(sent._shape[2:])
        parts = [_filled(_filled(sent.narrow(1, start, share), 1, self.shares[0]), 0, most) for start, share in zip(self.starts, self.shares)]
        came = _Exchange.apply(fn.stack(parts)).narrow(2, 0, own)
        made = experts(fn.cat([part.narrow(0, 0, count) for part, count in zip(came.unbind(0), self.groups)], 0))
        rows = [made.narrow(0, sum(self.groups[:r]), count) for r, count in enumerate(self.groups)]
        back = _Exchange.apply(fn.stack([_filled(_filled(row, 1, self.shares[0]), 0, most) for row in rows]))
        assert back._shape == (n, most, self.shares[0], *rest)
        return fn.cat([part.narrow(1, 0, share) for part, share in zip(back.unbind(0), self.shares)], 1).narrow(0, 0, groups)
