"""How multiprocessing sends tensors: their data in shared memory, not in the pickle."""

from __future__ import annotations

import multiprocessing.context
import multiprocessing.reduction as reduction
import os
import weakref
from typing import Any

from sluice._tensor import pickling
from sluice._C import Tensor
from sluice._tensor.creation import frombuffer
from sluice.multiprocessing import _segments
from sluice.nn.parameter import Parameter
from sluice._tensor.pickling import view_of

_SMALL = 1 << 14  # bytes that are sent like everything else
_shared: weakref.WeakValueDictionary[int, SharedSegment] = weakref.WeakValueDictionary()  # by address


class SharedSegment(_segments.Segment):
    """Memory that can be sent on: it keeps its descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        super().__init__(fd)
        _shared[self.address] = self

    def __del__(self) -> None:
        os.close(self.fd)
        super().__del__()


def segment_of(t: Any) -> SharedSegment | None:
    """The shared memory that a tensor lies in."""
    if not t.is_cpu or not t.numel():
        return None
    return _shared.get(pickling.address_range(t)[0])


def shared_copy(t: Any) -> tuple[SharedSegment, Any]:
    """The values of a tensor in new shared memory, and a tensor that lies there."""
    data = t.detach().contiguous()
    segment = SharedSegment(_segments.create(data.nbytes))
    target = frombuffer(segment.buffer(), dtype=data.dtype, count=data.numel()).view(data.shape)
    target.copy_(data)
    return segment, target


def share_memory(t: Any) -> Any:
    """Tensor.share_memory_."""
    pickling.check_concrete("share_memory_", t)
    if not t.is_cpu:
        raise NotImplementedError(f"share_memory_: the tensor is on {t.device}; only tensors on the CPU can be shared")
    if t.numel() and segment_of(t) is None:
        t.data = shared_copy(t)[1]
    return t


def _reduce(t: Any) -> Any:
    pickling.check_sendable(t)
    parameter = isinstance(t, Parameter)
    segment = None if t._traced or t._global else segment_of(t)
    if segment is None and (t._traced or t._global or not t.is_cpu or t.nbytes < _SMALL):
        return (pickling.reduce_parameter if parameter else pickling.reduce_tensor)(t, 4)
    data = t.detach()
    if segment is None:
        segment, data = shared_copy(t)
    starting = multiprocessing.context.get_spawning_popen()
    if starting is not None:  # the descriptor is passed on when the process starts
        starting.__dict__.setdefault("sluice_segments", []).append(segment)
    place = (data.dtype, data.storage_offset(), tuple(data._shape), tuple(data._strides()))
    return _rebuild, (type(t), t.requires_grad, reduction.DupFd(segment.fd), place), t.__dict__ or None


def _rebuild(cls: Any, requires_grad: bool, duplicate: Any, place: Any) -> Any:
    dtype, offset, size, stride = place
    segment = SharedSegment(duplicate.detach())
    t = view_of(frombuffer(segment.buffer(), dtype=dtype), offset, size, stride)
    if issubclass(cls, Parameter):
        return cls(t, requires_grad)
    return (t if cls is Tensor else cls(t)).requires_grad_(requires_grad)


def register() -> None:
    for kind in (Tensor, Parameter):
        reduction.ForkingPickler.register(kind, _reduce)
