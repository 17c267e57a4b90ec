"""Memory that processes share. It has no name: the last process that maps it frees it, however that process ends."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.restype = ctypes.c_int
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_munmap = _libc.munmap
_MAP_POPULATE = 0x8000  # the pages are there already; one call maps them all
_FAILED = ctypes.c_void_p(-1).value


def round_to_pages(nbytes: int) -> int:
    return max(1, -(-nbytes // mmap.PAGESIZE)) * mmap.PAGESIZE


class Segment:
    """A mapping of `size` bytes, shared with every process that was given a descriptor of it.

    Buffers keep it mapped. Python's own mmap keeps a descriptor open for each mapping, of which a process may have few.
    """

    def __init__(self, fd: int) -> None:
        self.size = os.fstat(fd).st_size
        address = _libc.mmap(None, self.size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_POPULATE, fd, 0)
        if address == _FAILED:
            error = ctypes.get_errno()
            self.size = 0
            raise OSError(error, f"shared memory: cannot map {os.fstat(fd).st_size} bytes: {os.strerror(error)}")
        self.address = address

    def buffer(self) -> Any:
        """All of it, as a writable array of bytes that allows weak references."""
        array = (ctypes.c_ubyte * self.size).from_address(self.address)
        array.segment = self  # type: ignore[attr-defined]
        return array

    def __del__(self, munmap: Any = _munmap) -> None:
        if self.__dict__.get("address"):
            munmap(self.address, self.size)


def create(nbytes: int) -> int:
    """A descriptor of new memory of at least `nbytes`, all of it zero and there."""
    if not hasattr(os, "memfd_create"):
        raise NotImplementedError("shared memory: needs memfd_create, which Linux has; use num_workers=0")
    size = round_to_pages(nbytes)
    fd = os.memfd_create("sluice", os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        os.close(fd)
        raise OSError(error.errno, f"shared memory: cannot allocate {size} bytes: {error.strerror}") from None
    return fd
