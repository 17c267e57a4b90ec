"""Gradients of a DistributedDataParallel, averaged over the ranks inside the plan of the backward pass (ADR 76)."""

from __future__ import annotations

import weakref
from typing import Any

from sluice import _C, distributed as dist
from sluice._C import fn, Tensor
from sluice._tensor.creation import from_numpy, ones
from sluice._tensor.host_function import host_function
from sluice.nn.parallel.distributed import DistributedDataParallel, wrappers

_DTYPES = (_C.float32, _C.float64)  # which NumPy has, too
_STREAM = "host:1"


def wrapper_of(leaves: list[Tensor]) -> DistributedDataParallel | None:
    """The wrapper whose parameters are all among the leaves, and which wants their averages of this backward pass."""
    there = {id(t) for t in leaves}
    return next((w for w in wrappers() if w._takes_averages() and all(
        id(p) in there and p.dtype in _DTYPES for bucket in w._buckets for p in bucket.params)), None)


class Averages:
    """The buckets of a wrapper. A bucket travels as soon as the plan has its gradients, while the plan computes others; the actors that send
    are on one stream and in the order of the buckets, which is the same on all ranks."""

    def __init__(self, wrapper: DistributedDataParallel, leaves: list[Tensor]) -> None:
        places = {id(t): i for i, t in enumerate(leaves)}
        self._buckets = [[places[id(p)] for p in bucket.params] for bucket in wrapper._buckets]
        self.wrapper = weakref.ref(wrapper)
        self.sent = 0  # buckets of the backward pass under way

    def covered(self, there: list[bool]) -> bool:
        """Whether all of the wrapper's parameters have a gradient."""
        return all(there[i] for bucket in self._buckets for i in bucket)

    def traced(self, grads: list[Any]) -> list[Any]:
        """`grads` with averages in the places of the wrapper's parameters."""
        grads = list(grads)
        for bucket in self._buckets:
            own = [grads[i] for i in bucket]
            # One element more for each parameter says that it has a gradient here, as the wrapper's own buckets do.
            flat = fn.cat([*(g.reshape(-1) for g in own), ones(len(own), dtype=own[0].dtype)], 0)
            average = host_function(self._average, flat, out=((flat.numel(),), flat.dtype), stream=_STREAM)
            for i, g, part in zip(bucket, own, average.split([*(g.numel() for g in own), len(own)])):
                grads[i] = part.reshape(g.shape)
        return grads

    def _average(self, flat: Any) -> Any:
        value = from_numpy(flat.copy())
        work = dist.all_reduce(value, dist.ReduceOp.AVG, async_op=True)
        self.sent += 1
        work.wait()
        return value.numpy()
