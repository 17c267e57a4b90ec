"""Messages and file descriptors between two processes, over a socket that neither of them ever blocks on unasked."""

from __future__ import annotations

import array
import collections
import contextlib
import os
import select
import socket
import struct
from typing import Any

_HEADER = struct.Struct("<QI")  # bytes that follow, and descriptors that came along
_MOST_DESCRIPTORS = 200  # the kernel passes at most 253 at once
_READ = 1 << 18


class Channel:
    """One end. `send` queues, `flush` writes what fits, `receive` gives the messages that are there.

    Nobody blocks in a write while the other side does, too: the loader, which serves many channels, only flushes.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._in = bytearray()
        self._descriptors: collections.deque[int] = collections.deque()
        self._out: collections.deque[tuple[memoryview, list[int]]] = collections.deque()

    @staticmethod
    def pair() -> tuple[socket.socket, socket.socket]:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def unsent(self) -> bool:
        return bool(self._out)

    def send(self, message: bytes, descriptors: Any = ()) -> None:
        """Queues a message. The descriptors are its own from now on: it closes them when they are sent."""
        descriptors = list(descriptors)
        self._out.append((memoryview(_HEADER.pack(len(message), len(descriptors))), []))
        while len(descriptors) > _MOST_DESCRIPTORS:  # each part needs a byte to travel with
            self._out.append((memoryview(b"\0"), descriptors[:_MOST_DESCRIPTORS]))
            descriptors = descriptors[_MOST_DESCRIPTORS:]
        if descriptors:
            self._out.append((memoryview(b"\0"), descriptors))
        if message:
            self._out.append((memoryview(message), []))

    def flush(self) -> bool:
        """Writes what fits; whether all is written. Raises OSError when the other side is gone."""
        while self._out:
            data, descriptors = self._out[0]
            try:
                if descriptors:
                    rights = array.array("i", descriptors)
                    sent = self._socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                    for fd in descriptors:
                        os.close(fd)
                else:
                    sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                return False
            self._out.popleft()
            if sent < len(data):
                self._out.appendleft((data[sent:], []))
        return True

    def flush_all(self) -> None:
        """Writes all, and waits where it must."""
        while not self.flush():
            poll = select.poll()
            poll.register(self._socket, select.POLLOUT)
            poll.poll()

    def receive(self) -> list[tuple[bytes, list[int]]]:
        """The messages that have come, with their descriptors. Raises EOFError when the other side is gone and all is read."""
        closed = False
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, _READ, _MOST_DESCRIPTORS)
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionError:
                closed = True
                break
            self._descriptors.extend(descriptors)
            if not data:
                closed = True
                break
            self._in += data
            if len(data) < _READ:
                break
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        if closed and not messages:
            raise EOFError
        return messages

    def _next(self) -> tuple[bytes, list[int]] | None:
        if len(self._in) < _HEADER.size:
            return None
        length, count = _HEADER.unpack_from(self._in)
        start = _HEADER.size + -(-count // _MOST_DESCRIPTORS)
        if len(self._in) < start + length:
            return None
        message = bytes(memoryview(self._in)[start:start + length])
        del self._in[:start + length]
        return message, [self._descriptors.popleft() for _ in range(count)]

    def wait(self, timeout: float | None) -> bool:
        """Whether something can be read, or the other side is gone, within `timeout` seconds."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def close(self) -> None:
        for _, descriptors in self._out:
            for fd in descriptors:
                os.close(fd)
        self._out.clear()
        while self._descriptors:
            os.close(self._descriptors.popleft())
        with contextlib.suppress(OSError):  # the other side may be gone
            self._socket.shutdown(socket.SHUT_RDWR)  # a fork() of this process may have a copy, which would keep it open
        self._socket.close()
