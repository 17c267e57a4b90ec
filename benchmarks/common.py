"""Interleaved comparisons: each side lives in a process of its own and is timed in turn; medians of rounds."""
import json
import os
import multiprocessing as mp
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Callable

os.environ.setdefault("SLUICE_CACHE", "off")  # a first call compiles, whatever ran before


def _serve(connection, make: Callable, arguments: tuple) -> None:
    step = make(*arguments)  # returns a function that runs n steps and waits for them
    connection.send("ready")
    while (count := _received(connection)) is not None:
        begin = time.perf_counter()
        step(count)
        connection.send((time.perf_counter() - begin) / count)


def _received(connection):
    try:
        return connection.recv()
    except EOFError:  # the other process has ended
        return None


def alive(make: Callable, *arguments, daemon: bool = True) -> "Side | None":
    """A side; None where it does not start, as a peer that is not installed."""
    try:
        return Side(make, *arguments, daemon=daemon)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return None


class Side:
    """One contestant: `make(*arguments)` runs in a fresh process and returns `run(n_steps)`.

    daemon: ended with this process, and may have no processes of its own.
    """

    def __init__(self, make: Callable, *arguments, daemon: bool = True):
        context = mp.get_context("spawn")
        self._connection, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child, make, arguments), daemon=daemon)
        self._process.start()
        child.close()
        try:
            self._connection.recv()
        except EOFError:
            raise RuntimeError(f"benchmark: {make.__name__}{arguments} failed to start; see its error above") from None

    def time(self, count: int) -> float:
        """Seconds per step over `count` steps."""
        self._connection.send(count)
        return self._connection.recv()

    def cpu_seconds(self) -> float:
        """What the process and those it has started have taken of the cores so far."""
        pids, ticks = [self._process.pid], 0
        for pid in pids:
            for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                pids += children.read_text().split()
            ticks += sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._connection.send(None)
        self._process.join(10)


def _steps(side: Side, seconds: float) -> int:
    """How many steps of a side take so long, after a warm-up of the same length; one step where that is longer."""
    side.time(1)  # may compile
    step = side.time(1)
    if step > seconds / 2:
        return 1
    count = max(1, int(seconds / max(side.time(3), 1e-7)))
    side.time(count)
    return count


def measure(sides: list[Side], rounds: int = 9, seconds: float = 0.3,
            told: Callable[[str], None] = lambda text: None) -> list[list[float]]:
    """Seconds per step of each side for each round, sides taken in turn. Ends the sides.

    told: gets lines that say how far it is.
    """
    counts = []
    for i, side in enumerate(sides):
        counts.append(_steps(side, seconds))
        told(f"{i + 1} of {len(sides)} are warm")
    times = []
    for i in range(rounds):
        times.append([side.time(n) for side, n in zip(sides, counts)])
        told(f"round {i + 1} of {rounds}")
    for side in sides:
        side.close()
    return list(map(list, zip(*times)))


def cores_taken(sides: list[Side], rounds: int = 5, seconds: float = 1.0) -> list[list[float]]:
    """Seconds of the cores that a step of each side takes, for each round, sides taken in turn. Ends the sides."""
    counts = [_steps(side, seconds) for side in sides]
    times = []
    for _ in range(rounds):
        row = []
        for side, count in zip(sides, counts):
            before = side.cpu_seconds()
            side.time(count)
            row.append((side.cpu_seconds() - before) / count)
        times.append(row)
    for side in sides:
        side.close()
    return list(map(list, zip(*times)))


def spread(values: list[float]) -> float:
    """Half the interquartile range over the median."""
    quarters = statistics.quantiles(values, n=4)
    return (quarters[2] - quarters[0]) / 2 / statistics.median(values)


def traced_kernels(graph) -> list[dict]:
    """The events of the kernels that a traced graph has run since the last time, as Perfetto has them."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        graph.save_trace(path)
        with open(path) as file:
            return [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and e["cat"] == "kernel"]


def extent(events: list[dict]) -> float:
    """Microseconds from the first one's beginning to the last one's end."""
    return max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)


def report(name: str, ours: float, peer: float | None, peer_name: str, unit: str, n: int, spread: float,
           ratio: float | None = None, aim: float | None = None, **more) -> None:
    """Prints one line of the table. A ratio above 1 always means ours is better. aim: what the ratio should be."""
    if ratio is None and peer is not None:
        ratio = peer / ours
    command = f"make bench ONLY={name}"
    if aim is not None:
        peer_name, more["aim"] = f"{peer_name} (the aim: {aim:.3g})", aim
    print(json.dumps(dict(name=name, ours=ours, peer=peer, peer_name=peer_name, unit=unit, ratio=ratio, n=n,
                          spread=spread, command=command, **more)), flush=True)


def compare(name: str, ours: Side, peer: Side, peer_name: str, rounds: int = 9, **more) -> None:
    """Times a step of both sides and reports milliseconds."""
    a, b = measure([ours, peer], rounds)
    report(name, statistics.median(a) * 1e3, statistics.median(b) * 1e3, peer_name, "ms", rounds,
           max(spread(a), spread(b)), **more)


def wanted(name: str) -> bool:
    """Whether the command line asks for this line: `script.py [PREFIX]`."""
    return len(sys.argv) < 2 or name.startswith(sys.argv[1])
