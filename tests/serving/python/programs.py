"""sluice-serve as a process, and models for it, for tests."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

import numpy as np

import sluice as sl
from sluice._base.tools import find_tool
from waiting import PATIENCE

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Served:
    """A running server. `http`, `grpc` and `metrics` are "host:port" of those that are on."""

    def __init__(self, *arguments, folder):
        self.log = pathlib.Path(folder) / f"server-{time.monotonic_ns()}.log"
        ports = [a for name in ("http", "grpc", "metrics") if f"--{name}-port" not in arguments for a in (f"--{name}-port", "0")]
        self.out = open(self.log, "wb")
        self.process = subprocess.Popen([find_tool("sluice-serve"), *map(str, arguments), *ports], stdout=subprocess.PIPE,
                                        stderr=self.out, text=True)
        self.lines = []
        self.http = self.grpc = self.metrics = ""

    def wait_for(self, word):
        """Reads what it prints until a line begins with `word`; that line."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            name, _, rest = line.strip().partition(" ")
            if name in ("http", "grpc", "metrics"):
                setattr(self, name, rest.strip().removeprefix("http://").partition("/")[0])
            if name == word:
                return line.strip()
        raise AssertionError(f"the server ended with {self.process.wait()} before it said '{word}':\n{self.errors()}")

    def errors(self):
        return self.log.read_text(errors="replace")

    def stop(self, how=signal.SIGTERM):
        """Ends it; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.out.close()
        return status

    def rss(self):
        """Bytes of memory that it alone has."""
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no RssAnon")

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextlib.contextmanager
def served(repository, *arguments, folder, ready="ready"):
    server = Served("--model-repository", repository, *arguments, folder=folder)
    try:
        if ready:
            server.wait_for(ready)
        yield server
    finally:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)


class Net(sl.nn.Graph):
    """Three logits of (batch, width) numbers."""

    def __init__(self, width=16, seed=0, name="net"):
        super().__init__(name=name)
        sl.manual_seed(seed)
        self.net = sl.nn.Sequential(sl.nn.Linear(width, 32), sl.nn.ReLU(), sl.nn.Linear(32, 3)).eval()

    def build(self, x):
        return self.net(x)


def save(repository, name="net", version=1, width=16, batch=1, seed=0, config=None):
    """Saves a net as a version of a model; the graph, to compare with."""
    graph = Net(width, seed, name)
    graph(sl.zeros(batch, width))
    folder = pathlib.Path(repository) / name / str(version) / "model"
    folder.parent.mkdir(parents=True, exist_ok=True)
    sl.save(graph, folder)
    if config is not None:
        (folder.parent.parent / "config.pbtxt").write_text(config)
    return graph


class Heavy(sl.nn.Graph):
    """A chain of products: some milliseconds of one core, so that load is the model's and not the network's."""

    def __init__(self, width, depth):
        super().__init__(name="heavy")
        sl.manual_seed(0)
        self.net = sl.nn.Sequential(*[sl.nn.Linear(width, width) for _ in range(depth)]).eval()

    def build(self, x):
        return self.net(x)


def save_heavy(repository, name="heavy", width=512, depth=12, rows=32, config=None):
    graph = Heavy(width, depth)
    graph.config.set_cores(1)
    graph(sl.zeros(rows, width))
    folder = pathlib.Path(repository) / name / "1" / "model"
    folder.parent.mkdir(parents=True, exist_ok=True)
    sl.save(graph, folder)
    if config is not None:
        (folder.parent.parent / "config.pbtxt").write_text(config)
    return graph


def expected(graph, x):
    return graph(sl.from_numpy(np.ascontiguousarray(x))).numpy()
