"""DistributedDataParallel: every rank trains on its own data, on gradients that are averaged over all ranks."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Iterator

import sluice
from sluice import _C, distributed as dist
from sluice._C import Tensor
from sluice.autograd.function import Function, once_differentiable
from sluice.distributed._state import state
from sluice.errors import TypeError, ValueError  # noqa: A004
from sluice.nn.modules import Module


class _Average(Function):
    """The parameters as they are; backward averages their gradients over the ranks, a bucket at a time."""

    @staticmethod
    def forward(ctx: Any, wrapper: DistributedDataParallel, *params: Tensor) -> Any:
        ctx.wrapper = wrapper
        ctx.set_materialize_grads(False)
        return tuple(p.detach() for p in params)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, *ctx.wrapper._average(list(grads))


class DistributedDataParallel(Module):
    """Wraps a module for training on several ranks, each on its part of the batch, in eager code.

    Parameters and buffers are rank 0's from the start. After backward() every rank has the same gradients: the average
    over all ranks, in which a parameter that a rank has not used counts as zero; one that no rank has used keeps its
    gradient. Ranks make the same forward and backward calls.

    bucket_cap_mb: gradients are sent in pieces of about so many MiB.
    broadcast_buffers: buffers are rank 0's again before each forward pass in training mode.

    Raises RuntimeError before distributed.init(), ValueError when the ranks' modules differ. Inside nn.Graph use
    module.to_global(placement, sbp.broadcast) instead.
    """

    def __init__(self, module: Module, bucket_cap_mb: float = 25, broadcast_buffers: bool = True) -> None:
        super().__init__()
        if bucket_cap_mb <= 0:
            raise ValueError(f"DistributedDataParallel: bucket_cap_mb is {bucket_cap_mb}; it must be positive")
        self.module, self.broadcast_buffers, self.require_backward_grad_sync = module, broadcast_buffers, True
        self._accumulated = False  # parameters may have gradients of this rank alone
        self._check_alike()
        with sluice.no_grad():
            for tensor in [*module.parameters(), *module.buffers()]:
                dist.broadcast(tensor, 0)
        self._trained = [p for p in module.parameters() if p.requires_grad]
        if not self._trained:
            raise ValueError("DistributedDataParallel: the module has no parameter that requires a gradient; use it as it is")
        self._buckets = _buckets_of(self._trained, bucket_cap_mb * 2**20)

    def _check_alike(self) -> None:
        """All ranks have local tensors of the same names and types, else an error that names the first that differs."""
        tensors = [*self.module.named_parameters(), *self.module.named_buffers()]
        for name, t in tensors:
            if t.is_global:
                raise TypeError(f"DistributedDataParallel: '{name}' is a global tensor: {t.sbp[0]!r} on {t.placement}; give a local module, "
                                "or use the global one in nn.Graph without this wrapper")
        own = "\n".join(f"{name} {t.dtype.name} {tuple(t.shape)} {t.requires_grad}" for name, t in tensors)
        first, *others = [text.split("\n") for text in state.get("DistributedDataParallel").all_gather_text(own)]
        for rank, theirs in enumerate(others, 1):
            for ours, other in itertools.zip_longest(first, theirs, fillvalue="nothing"):
                if ours != other:
                    raise ValueError(f"DistributedDataParallel: rank 0 has '{ours or 'nothing'}', rank {rank} has '{other or 'nothing'}'; the "
                                     "ranks' modules must be alike")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if _C.is_tracing():
            raise NotImplementedError("DistributedDataParallel: is for eager code; inside nn.Graph use "
                                      "module.to_global(placement, sbp.broadcast)")
        if not (sluice.is_grad_enabled() and self.require_backward_grad_sync):
            self._accumulated |= sluice.is_grad_enabled()
            return self.module(*args, **kwargs)
        if self.broadcast_buffers and self.training:
            with sluice.no_grad():
                for buffer in self.module.buffers():
                    dist.broadcast(buffer, 0)
        averaging = dict(zip(map(id, self._trained), _Average.apply(self, *self._trained)))
        replaced = [(m._parameters, name, p) for m in self.module.modules() for name, p in m._parameters.items() if id(p) in averaging]
        try:
            for table, name, p in replaced:
                table[name] = averaging[id(p)]
            return self.module(*args, **kwargs)
        finally:
            for table, name, p in replaced:
                table[name] = p

    def _average(self, grads: list[Any]) -> list[Any]:
        """The averages over all ranks, None where no rank has a gradient."""
        if self._accumulated:
            for i, p in enumerate(self._trained):
                if p.grad is not None:
                    grads[i] = p.grad if grads[i] is None else p.grad + grads[i]
                    p.grad = None
            self._accumulated = False
        for bucket in self._buckets:
            # One element more for each parameter tells whether any rank has a gradient.
            like = [self._trained[i] for i in bucket]
            used = sluice.tensor([float(grads[i] is not None) for i in bucket], dtype=like[0].dtype)
            flat = sluice.cat([(sluice.zeros_like(p) if grads[i] is None else grads[i]).reshape(-1) for i, p in zip(bucket, like)] + [used])
            dist.all_reduce(flat, dist.ReduceOp.AVG)
            *values, used = flat.split([*(p.numel() for p in like), len(bucket)])
            for i, p, value, share in zip(bucket, like, values, used.tolist()):
                grads[i] = value.reshape(p.shape) if share > 0 else None
        return grads

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Passes inside add up gradients of this rank alone; the first backward of a pass outside averages the sums."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before


def _buckets_of(params: list[Tensor], most_bytes: float) -> list[list[int]]:
    """Indices of parameters, last first as their gradients come, one dtype in each bucket."""
    buckets: list[list[int]] = []
    room: dict[Any, float] = {}
    last: dict[Any, list[int]] = {}
    for i in reversed(range(len(params))):
        dtype, size = params[i].dtype, params[i].numel() * params[i].element_size()
        if dtype not in last or room[dtype] < size:
            last[dtype], room[dtype] = [], most_bytes
            buckets.append(last[dtype])
        last[dtype].append(i)
        room[dtype] -= size
    return buckets
