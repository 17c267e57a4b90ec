"""The memory of tensors as objects, as torch's users ask for it: who shares memory, and how many bytes it has."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._tensor import pickling
from sluice._tensor.creation import empty, tensor
from sluice._tensor.methods import method
from sluice.errors import NotImplementedError  # noqa: A004


class UntypedStorage:
    """The bytes that a tensor and its views lie in; torch.UntypedStorage. Storages of one memory are equal.

    UntypedStorage(n) has n bytes of any contents, and UntypedStorage(list) these.
    """

    dtype = _C.uint8

    def __init__(self, size: Any = 0, *, device: Any = None) -> None:
        count = isinstance(size, int)
        self._values = empty(size, dtype=self.dtype, device=device) if count else tensor(list(size), dtype=self.dtype, device=device)

    @classmethod
    def _of(cls, values: Tensor) -> Any:
        made = cls.__new__(cls)
        made._values = values
        return made

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> Any:
        return cls(size, device=device).share_memory_()

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> Any:
        """The first bytes of a file, as memory; torch.UntypedStorage.from_file."""
        from sluice._tensor.aliases import from_file

        return cls._of(from_file(filename, shared, nbytes, dtype=_C.uint8))

    @property
    def device(self) -> Any:
        return self._values.device

    @property
    def __array_interface__(self) -> Any:
        return self._values.numpy().__array_interface__

    @property
    def is_cuda(self) -> bool:
        return self._values.is_cuda

    @property
    def _cdata(self) -> int:
        return _C.memory_of(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and (type(self), self._cdata) == (type(other), other._cdata)

    def __hash__(self) -> int:
        return hash(self._cdata)

    def __len__(self) -> int:
        return self._values.numel()

    def __getitem__(self, index: Any) -> Any:
        found = self._values[index]
        return found.item() if found.ndim == 0 else self._of(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._values[index] = value

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} x {self.dtype} on {self.device}>"

    def data_ptr(self) -> int:
        return self._values.data_ptr()

    def nbytes(self) -> int:
        return self._values.nbytes

    def size(self) -> int:
        return len(self)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def tolist(self) -> list[Any]:
        return self._values.tolist()

    def clone(self) -> Any:
        return self._of(self._values.clone())

    def copy_(self, source: Any, non_blocking: Any = None) -> Any:
        self._values.copy_(source._values)
        return self

    def fill_(self, value: Any) -> Any:
        self._values.fill_(value)
        return self

    def to(self, *, device: Any, non_blocking: bool = False) -> Any:
        return self._of(self._values.to(device))

    def cpu(self) -> Any:
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        return self._of(self._values.cuda(device))

    def is_shared(self) -> bool:
        return self._values.is_shared()

    def share_memory_(self) -> Any:
        self._values.share_memory_()
        return self

    def untyped(self) -> UntypedStorage:
        return UntypedStorage._of(_C.whole_memory(self._values))

    def resize_(self, size: int) -> Any:
        if size != len(self):
            raise NotImplementedError(f"{type(self).__name__}.resize_: {len(self)} elements to {size}; memory keeps its size here: make "
                                      "another tensor, or drop the tensors to give the memory back")
        return self


class TypedStorage(UntypedStorage):
    """A storage whose elements are of a tensor's dtype; torch.storage.TypedStorage. Tensor.storage() makes them."""

    def __init__(self, size: Any = 0, *, dtype: Any = None, device: Any = None) -> None:
        self.dtype = dtype or _C.get_default_dtype()
        super().__init__(size, device=device)

    @classmethod
    def _of(cls, values: Tensor) -> Any:
        made = super()._of(values)
        made.dtype = values.dtype
        return made

    @property
    def _untyped_storage(self) -> UntypedStorage:
        return self.untyped()

    def _new_shared(self, size: int, *, device: Any = "cpu") -> Any:  # type: ignore[override]
        return TypedStorage(size, dtype=self.dtype, device=device).share_memory_()


def is_storage(obj: Any) -> bool:
    """Whether it is the memory of a tensor: an UntypedStorage, or one with a dtype. torch.is_storage."""
    return isinstance(obj, UntypedStorage)


@method
def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that it and its views lie in. torch.Tensor.untyped_storage."""
    pickling.check_concrete("untyped_storage", self)
    return UntypedStorage._of(_C.whole_memory(self.detach()))


@method
def storage(self: Tensor) -> TypedStorage:
    """The memory that it and its views lie in, as elements of its dtype. torch.Tensor.storage."""
    return TypedStorage._of(self.untyped_storage()._values.view(self.dtype))


@method
def record_stream(self: Tensor, stream: Any) -> None:
    """Nothing is to be done: memory stays until the work that uses it is complete. torch.Tensor.record_stream."""
