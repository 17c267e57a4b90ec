"""Eager data parallel training: torch.nn.parallel."""

from __future__ import annotations

from typing import Any

import sluice
from sluice import _C
from sluice._C import Tensor
from sluice.nn.modules.module import Module


class DistributedDataParallel(Module):
    """`module` on every rank, each with its own part of every batch.

    Parameters and buffers become those of rank 0, buffers at every forward pass in training. The gradient of a parameter is
    averaged over the ranks as soon as backward knows it; ranks that do not use the same parameters in the same order are told.
    """

    def __init__(self, module: Module, *, broadcast_buffers: bool = True) -> None:
        super().__init__()
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if tensor._global:
                raise TypeError(f"DistributedDataParallel: '{name}' is a global tensor: {tensor.sbp[0]!r} on {tensor.placement}; the "
                                "compiler of nn.Graph reduces its gradient: leave the wrapper away, or give a local module")
        self.module, self.broadcast_buffers = module, broadcast_buffers
        for tensor in (*module.parameters(), *module.buffers()):
            sluice.distributed.broadcast(tensor, 0)
        for number, (name, p) in enumerate(module.named_parameters()):
            if p.requires_grad:
                p.register_hook(lambda grad, number=number, name=name: _average(grad, number, name))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if _C.is_tracing():
            raise TypeError("DistributedDataParallel: averages the gradients of eager code; in nn.Graph lay the module and the batch "
                            "over the ranks: module.to_global(placement, sbp.broadcast), batch.to_global(placement, sbp.split(0))")
        if self.broadcast_buffers and self.training:
            for buffer in self.module.buffers():
                sluice.distributed.broadcast(buffer, 0)
        return self.module(*args, **kwargs)


def _average(grad: Tensor, number: int, name: str) -> Tensor:
    """The mean of the ranks' gradients. The parameter's number goes with them, and its mean shows whether all have the same one."""
    sent = sluice.cat([grad.detach().reshape(-1), sluice.full((1,), float(number), dtype=grad.dtype)])
    sluice.distributed.all_reduce(sent, sluice.distributed.ReduceOp.AVG)
    if sent[-1].item() != number:
        raise ValueError(f"DistributedDataParallel: rank {sluice.distributed.get_rank()} has the gradient of '{name}' where another "
                         "rank has that of another parameter; all ranks must use the same parameters in the same order")
    return sent[:-1].reshape(grad.shape)
