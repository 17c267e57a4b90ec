"""sluice-serve from Python: for notebooks, tests and programs that serve beside their own work.

    from sluice.serving import Server

    with Server("models") as server:
        with server.client() as client:
            print(client.infer("digits", {"INPUT_0": images}))

The server is a process of its own, so the GIL is none of its business, and ends with this one. docs/serving.md teaches the
rest.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from typing import Any, IO, Sequence

from sluice._base.tools import find_tool
from sluice.client import Client

__all__ = ["Server"]


class Server:
    """A running sluice-serve, once the constructor has returned.

    repository: the folder of models, or several; http_port, grpc_port, metrics_port: 0 for any that is free; arguments: further
    ones of the program, as in ["--model-control-mode", "explicit"]; timeout: seconds until it must be ready. Throws
    RuntimeError with what the program says where it cannot serve.
    """

    def __init__(self, repository: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, http_port: int = 0, grpc_port: int = 0,
                 metrics_port: int = 0, arguments: Sequence[str] = (), timeout: float = 300) -> None:
        repositories = [repository] if isinstance(repository, (str, os.PathLike)) else list(repository)
        command = [find_tool("sluice-serve"), "--exit-with-stdin"]
        for path in repositories:
            command += ["--model-repository", os.fspath(path)]
        for name, port in (("http", http_port), ("grpc", grpc_port), ("metrics", metrics_port)):
            command += [f"--{name}-port", str(port)]
        self.http_url = self.grpc_url = self.metrics_url = ""
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  as long as the process
        # Its standard input is a pipe from here: it ends with this process, however that ends.
        self._process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                                         text=True)
        late = threading.Timer(timeout, self._process.kill)
        late.start()
        try:
            if not self._wait_until_ready():
                status = self._process.wait()
                why = f"it was not ready within {timeout} s" if not late.is_alive() else f"it ended with {status}"
                raise RuntimeError(f"Server: sluice-serve: {why}; it says:\n{self.log()[-4000:]}")
        except BaseException:
            self._process.kill()
            self.stop()
            raise
        finally:
            late.cancel()

    def _wait_until_ready(self) -> bool:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, _, rest = line.strip().partition(" ")
            if name in ("http", "grpc", "metrics"):
                setattr(self, f"{name}_url", rest.strip())
            if name == "ready":
                return True
        return False

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def client(self, **options: Any) -> Client:
        """A new client of it; options: those of sluice.client.Client."""
        return Client(self.http_url, **options)

    def log(self) -> str:
        """The text that it has written to its log so far."""
        with open(f"/proc/self/fd/{self._errors.fileno()}", "rb") as file:
            return file.read().decode(errors="replace")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> int:
        """Takes no more requests, waits for those under way, and ends it; its exit status. Idempotent."""
        if self.running:
            self._process.terminate()
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return status
