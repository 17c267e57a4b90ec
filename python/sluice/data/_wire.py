"""Messages between a process that makes batches and those that train on them: a head in JSON, and the bytes of arrays."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import struct
from typing import Any

import numpy as np

from sluice import _C
from sluice._tensor.creation import from_numpy

_HEAD = struct.Struct("<I")
_MOST_HEAD = 1 << 20
_MOST_BYTES = 1 << 40  # of arrays; a head that says more is none of ours


class Lost(ConnectionError):
    """The other side has gone."""


class Wire:
    """One end of a connection. Not thread-safe."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, head: dict[str, Any], arrays: Any = ()) -> None:
        """A message; of arrays, C-contiguous ones of NumPy."""
        told = [[array.dtype.str, list(array.shape)] for array in arrays]
        text = json.dumps({**head, "arrays": told}).encode()
        try:
            self._socket.sendall(_HEAD.pack(len(text)) + text)
            for array in arrays:
                if array.nbytes:
                    self._socket.sendall(memoryview(array.reshape(-1).view(np.uint8)))
        except OSError as error:
            raise Lost(str(error)) from None

    def receive(self, most_bytes: int = _MOST_BYTES) -> tuple[dict[str, Any], list[Any]]:
        """The next message, with arrays of at most so many bytes. Raises Lost at the end, and ValueError where it is none."""
        (size,) = _HEAD.unpack(self._bytes(bytearray(_HEAD.size)))
        if size > _MOST_HEAD:
            raise ValueError(f"a head of {size} bytes; must be {_MOST_HEAD} at most")
        try:
            head = json.loads(self._bytes(bytearray(size)))
            kinds = [(np.dtype(dtype), tuple(int(n) for n in shape)) for dtype, shape in head["arrays"]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"a head that cannot be read: {type(error).__name__}: {error}") from None
        total = 0
        for dtype, shape in kinds:
            if dtype.hasobject or min(shape, default=0) < 0:
                raise ValueError(f"an array of {dtype}{shape}; must be numbers, of a shape")
            total += dtype.itemsize * int(np.prod(shape, dtype=object))
        if total > most_bytes:
            raise ValueError(f"arrays of {total} bytes; must be {most_bytes} at most")
        arrays = [np.empty(shape, dtype) for dtype, shape in kinds]
        for array in arrays:
            if array.nbytes:
                self._bytes(memoryview(array.reshape(-1).view(np.uint8)))
        return head, arrays

    def _bytes(self, buffer: Any) -> Any:
        view, at = memoryview(buffer), 0
        while at < len(view):
            try:
                count = self._socket.recv_into(view[at:])
            except TimeoutError:
                raise Lost("it says nothing") from None
            except OSError as error:
                raise Lost(str(error)) from None
            if count == 0:
                raise Lost("it has ended")
            at += count
        return buffer

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()


def place_of(where: str, address: str) -> tuple[socket.AddressFamily, Any]:
    """The socket's family and address of "host:port" or "unix:PATH"."""
    if address.startswith("unix:") and len(address) > 5:
        return socket.AF_UNIX, address[5:]
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{where}: {address!r}; must be 'host:port' or 'unix:PATH'")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ValueError(f"{where}: {address!r}: {error}") from None
    return found[0], found[4]


def is_local(family: Any, place: Any) -> bool:
    """Whether this machine alone reaches it."""
    return family == socket.AF_UNIX or ipaddress.ip_address(place[0]).is_loopback


def told(family: Any, place: Any) -> str:
    """A place as text."""
    if family == socket.AF_UNIX:
        return f"unix:{os.fsdecode(place)}"
    return f"[{place[0]}]:{place[1]}" if ":" in place[0] else f"{place[0]}:{place[1]}"


def to_arrays(tensors: Any) -> tuple[list[Any], list[str]]:
    """Arrays of tensors, and the names of their dtypes; bfloat16, which NumPy does not have, as the same bits."""
    arrays = [np.ascontiguousarray((t.view(_C.int16) if t.dtype == _C.bfloat16 else t).numpy()) for t in tensors]
    return arrays, [str(t.dtype).rpartition(".")[2] for t in tensors]


def to_tensors(arrays: Any, dtypes: Any) -> list[Any]:
    return [from_numpy(a).view(_C.bfloat16) if dtype == "bfloat16" else from_numpy(a) for a, dtype in zip(arrays, dtypes)]
