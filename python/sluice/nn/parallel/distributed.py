"""DistributedDataParallel: every rank trains on its own data, on gradients that are averaged over all ranks."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from typing import Any, Iterator

from sluice import _C, distributed as dist
from sluice._tensor import creation
from sluice._C import Tensor
from sluice._tensor.creation import zeros
from sluice._base.grad_mode import no_grad
from sluice._base.job import state
from sluice.errors import TypeError, ValueError  # noqa: A004
from sluice.nn.modules.module import Module


_wrappers: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()


def wrappers() -> list[DistributedDataParallel]:
    """All wrappers that there are."""
    return list(_wrappers)


class _Bucket:
    """Parameters of one dtype whose gradients travel together, and the memory they travel in."""

    def __init__(self, params: list[Tensor]) -> None:
        sizes = [p.numel() for p in params]
        self.params, self.work = params, None
        self.fresh = [False] * len(params)  # has a gradient since the last averages
        self.arrived: set[int] = set()  # in the backward pass under way
        # One element more for each parameter tells whether it is fresh on any rank.
        self.flat = zeros(sum(sizes) + len(params), dtype=params[0].dtype)
        *views, self.used = self.flat.split([*sizes, len(params)])
        self.views = [v.reshape(p.shape) for v, p in zip(views, params)]

    def send(self) -> None:
        for p, view in zip(self.params, self.views):
            if p.grad is None:
                view.zero_()
            elif p.grad.data_ptr() != view.data_ptr():
                view.copy_(p.grad)
        self.used.copy_(creation.tensor([float(f) for f in self.fresh]))
        self.work = dist.all_reduce(self.flat, dist.ReduceOp.AVG, async_op=True)

    def store(self, as_view: bool) -> None:
        for p, view, share in zip(self.params, self.views, self.used.tolist()):
            if share == 0 or (p.grad is not None and p.grad.data_ptr() == view.data_ptr()):
                continue
            if as_view or p.grad is None:
                p.grad = view if as_view else view.clone()
            else:
                p.grad.copy_(view)
        self.fresh = [False] * len(self.params)


class DistributedDataParallel(Module):
    """Wraps a module for training on several ranks, each on its part of the batch, in eager code.

    Parameters and buffers are rank 0's from the start. After backward() every rank has the same gradients: the average
    over all ranks, in which a parameter that a rank has not used counts as zero; one that no rank has used keeps its
    gradient. Ranks make the same forward and backward calls. The results of autograd.grad() are of this rank alone. A parameter whose
    attribute `allreduce` is False is its rank's own, such as the experts of parallel.MoE: it is left alone.

    bucket_cap_mb: gradients are sent in buckets, each as soon as it has so many MiB and those before it are sent, while
        backward() goes on with the others.
    broadcast_buffers: buffers are rank 0's again before each forward pass in training mode.
    gradient_as_bucket_view: gradients stay in the buckets' memory, which the next backward() overwrites.

    Raises RuntimeError before distributed.init(), ValueError when the ranks' modules differ. Inside nn.Graph use
    module.to_global(placement, sbp.broadcast) instead.
    """

    def __init__(self, module: Module, bucket_cap_mb: float = 25, broadcast_buffers: bool = True,
                 gradient_as_bucket_view: bool = False) -> None:
        super().__init__()
        if bucket_cap_mb <= 0:
            raise ValueError(f"DistributedDataParallel: bucket_cap_mb is {bucket_cap_mb}; it must be positive")
        self.module, self.broadcast_buffers, self.require_backward_grad_sync = module, broadcast_buffers, True
        self.bucket_bytes_cap, self.gradient_as_bucket_view = bucket_cap_mb * 2**20, gradient_as_bucket_view
        self._check_alike()
        with no_grad():
            for tensor in [*filter(_shared, module.parameters()), *module.buffers()]:
                dist.broadcast(tensor, 0)
        self._prepare()

    def _prepare(self) -> None:
        trained = [p for p in self.module.parameters() if p.requires_grad and _shared(p)]
        if not trained:
            raise ValueError("DistributedDataParallel: the module has no parameter that requires a gradient; use it as it is")
        self._buckets = [_Bucket(params) for params in _bucketed(trained, self.bucket_bytes_cap)]
        self._wanted = False  # averages, by the latest forward pass
        self._awaited = 0  # forward passes that want averages, less backward passes that gave them
        self._sent: int | None = None  # buckets, in the backward pass under way
        self._averages: Any = None  # of a plan that averages in the backward pass under way
        _wrappers.add(self)
        this = weakref.ref(self)  # parameters hold the hooks, and this holds the parameters
        for b, bucket in enumerate(self._buckets):
            for i, p in enumerate(bucket.params):
                p.register_post_accumulate_grad_hook(lambda _, b=b, i=i: this() and this()._arrived(this()._buckets[b], i))

    def __getstate__(self) -> Any:
        return {name: value for name, value in self.__dict__.items() if name not in ("_buckets", "_wanted", "_awaited", "_sent", "_averages")}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        self._prepare()

    def _check_alike(self) -> None:
        """All ranks have local tensors of the same names and types, else an error that names the first that differs."""
        tensors = [*((name, p) for name, p in self.module.named_parameters() if _shared(p)), *self.module.named_buffers()]
        for name, t in tensors:
            if t.is_global:
                raise TypeError(f"DistributedDataParallel: '{name}' is a global tensor: {t.sbp[0]!r} on {t.placement}; give a local module, "
                                "or use the global one in nn.Graph without this wrapper")
        own = "\n".join(f"{name} {t.dtype.name} {tuple(t.shape)} {t.requires_grad}" for name, t in tensors)
        texts = state.run("DistributedDataParallel", False, lambda world: world.all_gather_text(own))
        first, *others = [text.split("\n") for text in texts]
        for rank, theirs in enumerate(others, 1):
            for ours, other in itertools.zip_longest(first, theirs, fillvalue="nothing"):
                if ours != other:
                    raise ValueError(f"DistributedDataParallel: rank 0 has '{ours or 'nothing'}', rank {rank} has '{other or 'nothing'}'; the "
                                     "ranks' modules must be alike")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if _C.is_tracing():
            raise NotImplementedError("DistributedDataParallel: is for eager code; inside nn.Graph use "
                                      "module.to_global(placement, sbp.broadcast)")
        if _C.is_grad_enabled():
            self._wanted = self.require_backward_grad_sync
            self._awaited += self._wanted
            if self._wanted and self.broadcast_buffers and self.training:
                with no_grad():
                    for buffer in self.module.buffers():
                        dist.broadcast(buffer, 0)
        return self.module(*args, **kwargs)

    def _takes_averages(self) -> bool:
        """Whether a plan may average the gradients of a backward pass that begins: these will be all that there are."""
        return ((self._wanted or self._awaited > 0) and self._sent is None and not self.gradient_as_bucket_view
                and not any(any(bucket.fresh) for bucket in self._buckets)
                and all(p.grad is None for bucket in self._buckets for p in bucket.params))

    def _averaged_by(self, averages: Any) -> None:
        """Gradients that arrive in this backward pass are averages already. averages.sent: how many buckets the plan has sent."""
        averages.sent, self._averages, self._sent = 0, averages, len(self._buckets)
        _C.queue_callback(self._finish_plan)

    def _finish_plan(self, succeeded: bool) -> None:
        """The end of a backward pass whose plan averages: waits for it, and tells the others where it has failed."""
        averages, failure = self._averages, None
        try:
            for p in itertools.chain.from_iterable(bucket.params for bucket in self._buckets):
                if p.grad is not None:
                    try:
                        p.grad.data_ptr()
                    except Exception as error:  # noqa: BLE001 the others are told first
                        failure = failure or error
            for _ in range(len(self._buckets) - averages.sent):
                state.run("DistributedDataParallel", False, lambda world: world.miss("its backward() has failed"))
            if succeeded and failure is not None:
                raise failure
        finally:
            self._sent, self._averages, self._awaited = None, None, max(0, self._awaited - 1)

    def _arrived(self, bucket: _Bucket, i: int) -> None:
        """Parameter i's gradient is complete. Buckets are sent in their order, which is the same on all ranks."""
        if self._averages is not None:
            return
        bucket.fresh[i] = True
        if not self._wanted and self._awaited == 0:
            return
        if self._sent is None:
            self._sent = 0
            _C.queue_callback(self._finish)
        if bucket.work is not None:
            name = next(name for name, p in self.module.named_parameters() if p is bucket.params[i])
            raise RuntimeError(f"DistributedDataParallel: '{name}' has got another gradient after the first was sent; a backward pass must "
                               "give each parameter its whole gradient at once")
        bucket.arrived.add(i)
        while self._sent < len(self._buckets) and len(self._buckets[self._sent].arrived) == len(self._buckets[self._sent].params):
            self._send()

    def _send(self) -> None:
        with no_grad():
            self._buckets[self._sent].send()
        self._sent += 1

    def _finish(self, succeeded: bool) -> None:
        """The end of a backward pass: sends what is left, and stores the averages."""
        try:
            while succeeded and self._sent < len(self._buckets):
                self._send()
            missed = len(self._buckets) - self._sent
            for _ in range(missed):
                state.run("DistributedDataParallel", False, lambda world: world.miss("its backward() has failed"))
            failures = [e for bucket in self._buckets[:self._sent] if (e := bucket.work.exception()) is not None]
            if failures:
                raise failures[0]
            if succeeded:
                with no_grad():
                    for bucket in self._buckets:
                        bucket.store(self.gradient_as_bucket_view)
        finally:
            self._sent, self._awaited = None, max(0, self._awaited - 1)
            for bucket in self._buckets:
                bucket.work = None
                bucket.arrived.clear()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """The backward passes of forward passes inside add up gradients of this rank alone; that of one outside averages the
        sums."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before


def _shared(p: Tensor) -> bool:
    """Whether it is the same on all ranks, and not this rank's own."""
    return getattr(p, "allreduce", True) is not False


def _bucketed(params: list[Tensor], bytes_cap: float) -> list[list[Tensor]]:
    """The parameters, last first as their gradients come, one dtype in each bucket, which is full at bytes_cap."""
    buckets: list[list[Tensor]] = []
    filling: dict[Any, list[Tensor]] = {}
    for p in reversed(params):
        if p.dtype not in filling:
            buckets.append(filling.setdefault(p.dtype, []))
        filling[p.dtype].append(p)
        if sum(q.numel() * q.element_size() for q in filling[p.dtype]) >= bytes_cap:
            del filling[p.dtype]
    return buckets
