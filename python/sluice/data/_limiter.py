"""Frames that come as fast as they like, for a net that takes its time: the newest is shown, and older ones are dropped."""

from __future__ import annotations

import collections
import threading
import time
from typing import Any, Callable

import numpy as np

from sluice import _C
from sluice._base.trace import running
from sluice._tensor.creation import tensor
from sluice._tensor.host_function import host_function
from sluice.data._mapped import _program_ends
from sluice.nn import Module

_LOOK = 0.1  # seconds after which a wait for frames looks whether the program ends
_KEPT = 4096  # latencies


class Limiter(Module):
    """The source of a graph that must not fall behind: a camera, a microphone, a market.

        class Live(nn.Graph):
            def __init__(self, net):
                super().__init__()
                self.net, self.camera = net, data.Limiter(((3, 480, 640), sl.uint8))

            def build(self):
                frame = self.camera()                 # the newest frame, once the one before it is finished
                return self.camera.finished(self.net(frame.float()))

        live.camera.put(frame)                        # from any thread; never waits
        while True:
            boxes = live().numpy()                    # sl.EndOfData behind camera.close()

    finished() gives a token back to where frames are taken (in the plan: a register that begins with one token), so a single frame is
    in work, however many steps were submitted. When it is finished, the newest of the frames that wait is taken, and those
    before it are dropped and counted: no result is older than a step and a frame.

    out: (shape, dtype) of a frame, or a list of them. waiting: frames that may wait; more than one are taken in order, and the oldest is
    dropped where there are more. clock: gives seconds.
    """

    token: Any

    def __init__(self, out: Any, waiting: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        if waiting < 1:
            raise ValueError(f"Limiter: waiting: {waiting}; must be at least 1")
        self._out, self._clock = out, clock
        self._kinds = [(tuple(shape), np.dtype(dtype.name)) for shape, dtype in ([out] if isinstance(out, tuple) else out)]
        self._frames: Any = collections.deque()  # (when it came, arrays)
        self._most = waiting
        self._state = threading.Condition()
        self._closed = False
        self._arrived = self._taken = 0  # steps for which there is a frame, and those that have it
        self._in_work: Any = collections.deque()  # when they came
        self.put_count = self.dropped = self.finished_count = 0
        self.latencies: Any = collections.deque(maxlen=_KEPT)  # seconds from put() to the end of a step, of the latest steps
        self.register_buffer("token", tensor(0), persistent=False)

    def put(self, *frame: Any) -> bool:
        """Hands in a frame, an array for each part; it is copied. False: an older one was dropped for it."""
        arrays = [np.array(part) for part in frame]
        if (kinds := [(a.shape, a.dtype) for a in arrays]) != self._kinds:
            told = [", ".join(f"{d}{s}" for s, d in k) or "no parts" for k in (kinds, self._kinds)]
            raise ValueError(f"Limiter.put: {told[0]}; must be {told[1]}")
        with self._state:
            if self._closed:
                raise RuntimeError("Limiter.put: closed; graph.reset() opens it again")
            self.put_count += 1
            self._frames.append((self._clock(), arrays))
            late = len(self._frames) > self._most
            if late:
                self._frames.popleft()
                self.dropped += 1
            self._state.notify_all()
        return not late

    def close(self) -> None:
        """There are no more frames: behind those that wait the graph raises sluice.EndOfData, until graph.reset()."""
        with self._state:
            self._closed = True
            self._state.notify_all()

    def forward(self) -> Any:
        """The newest frame, inside of a graph's build()."""
        if running.now.functions is None:
            raise TypeError("Limiter: called outside of a graph's build(); put() takes frames, and a graph gives them to a net")
        there = host_function(_Arrivals(self), out=((), _C.int64))
        return host_function(self._take, there, self.token, out=self._out, stream="host:1")

    def finished(self, y: Any) -> Any:
        """y, which is the last of what a step computes of its frame. The next frame is taken behind it."""
        done = host_function(self._finish, y.reshape(-1)[:1], out=((), _C.int64), stream="host:2")
        self.token.copy_(done)
        return y

    def _wait(self) -> int:
        with self._state:
            while not (self._frames and self._taken == self._arrived):
                if self._closed and not self._frames:
                    raise StopIteration
                if not self._state.wait(_LOOK) and _program_ends.is_set():
                    raise StopIteration
            self._arrived += 1
            return self._arrived

    def _take(self, there: Any, token: Any) -> Any:
        with self._state:
            came, arrays = self._frames.popleft()
            self._taken += 1
            self._in_work.append(came)
            self._state.notify_all()
        return arrays[0] if isinstance(self._out, tuple) else tuple(arrays)

    def _finish(self, y: Any) -> Any:
        with self._state:
            self.finished_count += 1
            self.latencies.append(self._clock() - self._in_work.pop())
            self._in_work.clear()  # of steps that have failed
        return np.int64(self.finished_count)

    def _reset(self) -> None:
        with self._state:
            self._closed = False
            self._frames.clear()
            self._arrived = self._taken

    def extra_repr(self) -> str:
        return f"{self._out}, waiting={self._most}, dropped={self.dropped} of {self.put_count}"


class _Arrivals:
    """The source of the plan: says that there is a frame for a step."""

    def __init__(self, limiter: Limiter) -> None:
        self.__name__, self._limiter = "frames", limiter

    def __call__(self) -> Any:
        return np.int64(self._limiter._wait())

    def reset(self) -> None:
        self._limiter._reset()
