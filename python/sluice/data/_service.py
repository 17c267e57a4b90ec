"""Batches that one process makes for the trainings of others: the server, and the pipeline that a training sees."""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import os
import socket
import threading
import time
from typing import Any, Iterator

from sluice import _C
from sluice._base.trace import running
from sluice._tensor.host_function import host_function
from sluice.data._wire import Lost, Wire, is_local, place_of, to_arrays, to_tensors, told

_VERSION = 1
_HELLO_SECONDS = 10.0
_ANSWER_SECONDS = 60.0  # of a server that makes its plan first
_AGAIN_SECONDS = 0.05


class Server:
    """Serves the batches of a pipeline (data.serve). `address`: where."""

    def __init__(self, pipeline: Any, address: str, token: str | None) -> None:
        pipeline._check_batches()
        family, place = place_of("data.serve", address)
        if token is None and not is_local(family, place):
            raise ValueError(f"data.serve: {address!r} without a token; whoever reaches it gets the data: say token=, or serve at 127.0.0.1")
        self._pipeline, self._token = pipeline, token
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._path = place if family == socket.AF_UNIX else None
        if self._path is None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)  # of a server that has ended without a word
        self._socket.bind(place)
        self._socket.listen()
        self.address = told(family, self._socket.getsockname())
        self._wires: set[Wire] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name="data.serve", daemon=True).start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            wire = Wire(connection)
            connection.settimeout(_HELLO_SECONDS)
            with self._lock:
                self._wires.add(wire)
            threading.Thread(target=self._serve, args=(wire, connection), name="data.serve", daemon=True).start()

    def _serve(self, wire: Wire, connection: socket.socket) -> None:
        try:
            hello, _ = wire.receive(most_bytes=0)
            try:
                pipeline = self._greeted(hello)
            except (ValueError, TypeError, KeyError) as error:
                wire.send({"refused": f"{type(error).__name__}: {error}"})
                return
            connection.settimeout(None)
            _Client(wire, pipeline).serve()
        except (Lost, ValueError):
            pass  # whoever asked has gone, or is none of ours
        finally:
            wire.close()
            with self._lock:
                self._wires.discard(wire)

    def _greeted(self, hello: dict[str, Any]) -> Any:
        """The pipeline of a training that has said who it is."""
        if hello.get("version") != _VERSION:
            raise ValueError(f"version {hello.get('version')!r}; this server has {_VERSION}")
        if self._token is not None and not hmac.compare_digest(str(hello.get("token")).encode(), self._token.encode()):
            raise ValueError("the token is another one")
        rank, world, order = int(hello["rank"]), int(hello["world"]), self._pipeline._order
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world}; must be in [0, {world})")
        if world > 1 and order.world > 1:
            raise ValueError(f"rank {rank} of {world} of a pipeline that is sharded itself; must be served without shard()")
        if world > 1:
            order = dataclasses.replace(order, rank=rank, world=world)
        pipeline = self._pipeline._with(_order=order)
        if hello.get("state") is not None:
            pipeline.load_state_dict(hello["state"])
        return pipeline

    def wait(self) -> None:
        """Serves until close(), or for as long as the process lives."""
        self._closed.wait()

    def close(self) -> None:
        """Ends all connections."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        with self._lock:
            for wire in self._wires:
                wire.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


class _Client:
    """One training, as the server sees it. It is sent a batch for each that it has asked for."""

    def __init__(self, wire: Wire, pipeline: Any) -> None:
        self._wire, self._pipeline = wire, pipeline

    def serve(self) -> None:
        p = self._pipeline
        length = None if p._epochs is None else len(p)
        p.memory()  # which has the plan compiled
        values = p._plan.graph.outputs[:-3 if p._decodes else -1]
        kinds = [(list(shape), str(dtype).rpartition(".")[2]) for _, dtype, shape in values]
        self._wire.send({"version": _VERSION, "length": length, "size": p._size, "classes": p.classes, "state": p.state_dict(), "kinds": kinds})
        batches: Any = None
        while True:
            asked, _ = self._wire.receive(most_bytes=0)
            if "begin" in asked:
                p._begins = asked["begin"] == "here"
                batches = iter(p)
                continue
            if batches is None:
                raise ValueError("a batch before a pass has begun")
            self._answer(batches)

    def _answer(self, batches: Any) -> None:
        try:
            batch = next(batches)
        except StopIteration:
            self._wire.send({"end": True, "state": self._pipeline.state_dict()})
            return
        except Exception as error:  # noqa: BLE001 the training is told
            self._wire.send({"failed": f"{type(error).__name__}: {error}", "state": self._pipeline.state_dict()})
            return
        single = not isinstance(batch, tuple)
        arrays, dtypes = to_arrays([batch] if single else batch)
        self._wire.send({"single": single, "dtypes": dtypes, "state": self._pipeline.state_dict()}, arrays)


class Remote:
    """The batches of a pipeline that another process serves (data.remote): of a pass at a time, as those of a Pipeline.

    So many batches as `ahead` says are asked for before they are wanted. When the server is lost, it is looked for again, for `timeout`
    seconds, and goes on behind the last batch that was handed out here.
    """

    def __init__(self, address: str, rank: int, world: int, token: str | None, ahead: int, timeout: float) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"data.remote: rank {rank} of {world}; must be in [0, {world})")
        if ahead < 1:
            raise ValueError(f"data.remote: ahead: {ahead}; must be at least 1")
        self.address, self._rank, self._world, self._token, self._ahead, self._timeout = address, rank, world, token, ahead, timeout
        self._place = place_of("data.remote", address)
        self._wire: Wire | None = None
        self._state: Any = None  # behind the last batch that was handed out
        self._asked = 0  # batches that have not come
        self._begins = True  # the next iteration goes on from there; else with the next pass
        self._pass: _Pass | None = None
        self._connected()

    def _connected(self) -> Wire:
        """The connection, made again where it was lost."""
        limit, why = time.monotonic() + self._timeout, ""
        while self._wire is None:
            connection = socket.socket(self._place[0], socket.SOCK_STREAM)
            try:
                connection.connect(self._place[1])
                connection.settimeout(_ANSWER_SECONDS)
                self._wire, self._asked = Wire(connection), 0
                self._hello()
                connection.settimeout(None)  # a batch may take any time
            except (OSError, Lost) as error:
                self._wire, why = None, str(error)
                connection.close()
                if time.monotonic() > limit:
                    raise ConnectionError(f"data.remote: {self.address}: no server in {self._timeout:g} s: {why}") from None
                time.sleep(_AGAIN_SECONDS)
        return self._wire

    def _hello(self) -> None:
        assert self._wire is not None
        self._wire.send({"version": _VERSION, "token": self._token, "rank": self._rank, "world": self._world, "state": self._state})
        answer, _ = self._wire.receive()
        if "refused" in answer:
            self._wire.close()
            raise ValueError(f"data.remote: {self.address}: refused: {answer['refused']}")
        self._length, self._size, self.classes, self._kinds = (answer[key] for key in ("length", "size", "classes", "kinds"))
        self._state = self._state or answer["state"]

    def _lost(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire = None

    def __len__(self) -> int:
        """Batches of a pass. TypeError where it has no end."""
        if self._length is None:
            raise TypeError("data: a pipeline with repeat() has no length; use take(), or count steps")
        return int(self._length)

    def __iter__(self) -> Iterator[Any]:
        """Batches of the next pass. A new iterator takes the place of an older one."""
        if self._asked:
            self._lost()  # with what an older iterator has asked for
        begin = "here" if self._begins else "next"
        self._begins = False
        self._pass = _Pass(self, begin)
        return self._pass

    def _next(self, running_pass: _Pass) -> Any:
        """The head and the arrays of the next answer."""
        while True:
            try:
                wire = self._connected()
                if not running_pass.begun:
                    wire.send({"begin": running_pass.begin})
                    running_pass.begun = True
                while self._asked < self._ahead + 1:
                    wire.send({"next": True})
                    self._asked += 1
                head, arrays = wire.receive()
                self._asked -= 1
            except Lost:
                self._lost()
                running_pass.begun = False
                continue
            self._state, running_pass.begin = head["state"], "here"
            if head.get("end"):
                self._drain(wire)
            return head, arrays

    def _drain(self, wire: Wire) -> None:
        """Takes the answers to what was asked for behind the end."""
        try:
            while self._asked:
                wire.receive()
                self._asked -= 1
        except Lost:
            self._lost()

    def __call__(self) -> Any:
        """The values of a batch, inside of a graph's build(), whose plan then has a source that receives them. All batches have to be whole.
        At the end of a pass the graph raises EndOfData, until graph.reset() begins the next."""
        if running.now.functions is None:
            raise TypeError("data.remote: called outside of a graph's build(); elsewhere iterate over it")
        if any(dtype == "bfloat16" for _, dtype in self._kinds):
            raise TypeError("data.remote: bfloat16, which NumPy does not have, as a source of a graph; serve float32")
        values = host_function(_Feed(self), out=[(tuple(shape), getattr(_C, dtype)) for shape, dtype in self._kinds])
        return values[0] if len(values) == 1 else tuple(values)

    def state_dict(self) -> dict[str, Any]:
        """The place behind the last batch that was handed out, as of Pipeline.state_dict()."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there."""
        before, self._state = self._state, dict(state)
        self._lost()
        try:
            self._connected()
        except ValueError:
            self._state = before
            raise
        self._begins, self._pass = True, None

    def close(self) -> None:
        self._lost()

    def __repr__(self) -> str:
        return f"Remote({self.address}, rank {self._rank} of {self._world}, batches of {self._size})"


class _Pass:
    """The batches of one pass."""

    def __init__(self, remote: Remote, begin: str) -> None:
        self._remote, self.begin, self.begun, self._ended = remote, begin, False, False

    def __iter__(self) -> _Pass:
        return self

    def answer(self) -> Any:
        """The next batch as its head and arrays."""
        remote = self._remote
        if self._ended or remote._pass is not self:
            raise StopIteration
        head, arrays = remote._next(self)
        if head.get("end"):
            self._ended = True
            raise StopIteration
        if "failed" in head:
            raise RuntimeError(f"data.remote: {remote.address}: {head['failed']}")
        return head, arrays

    def __next__(self) -> Any:
        head, arrays = self.answer()
        tensors = to_tensors(arrays, head["dtypes"])
        return tensors[0] if head["single"] else tuple(tensors)


class _Feed:
    """The source of a plan that receives batches."""

    def __init__(self, remote: Remote) -> None:
        self.__name__, self._remote = "remote", remote
        self._batches: Any = iter(remote)

    def __call__(self) -> Any:
        _, arrays = self._batches.answer()
        if len(arrays[0]) != self._remote._size:
            raise ValueError("data: the last batch is smaller, and plans have fixed sizes; serve batch(n, drop_last=True) or repeat()")
        return tuple(arrays)

    def reset(self) -> None:
        self._batches = iter(self._remote)
