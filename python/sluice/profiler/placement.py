"""Advice on where preprocessing should run: each stage is tried on a stream, a device or in processes of its own, in virtual time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import tempfile
from typing import Any, Callable, Iterator

from sluice import _C
from sluice._base.device import device as device_scope, stream as stream_scope
from sluice._base.tools import find_tool
from sluice._base.trace import within

_STEPS = 48
_NO_GAIN = 0.01  # less than that is none
_COPY = 4e9  # bytes a second that a thread takes from a worker's memory


@dataclasses.dataclass(frozen=True)
class Move:
    """A stage that runs elsewhere: how the program says so, and how long a step takes then, in seconds."""

    stage: str
    to: str
    how: str
    seconds: float
    gain: float  # the share of a step that is saved


@dataclasses.dataclass(frozen=True)
class Advice:
    """How long a step takes, in seconds; what moves would gain, the best first; and those that no device could do, with reasons."""

    seconds: float
    moves: tuple[Move, ...]
    refused: tuple[tuple[str, str, str], ...]

    @property
    def best(self) -> Move | None:
        """The move that gains most; None where none gains a hundredth."""
        return self.moves[0] if self.moves and self.moves[0].gain >= _NO_GAIN else None

    def __str__(self) -> str:
        lines = [f"a step takes {self.seconds * 1e3:.4g} ms, predicted"]
        for move in self.moves:
            lines.append(f"  {move.stage} to {move.to}: {move.seconds * 1e3:.4g} ms, {move.gain:.0%} less: {move.how}")
        lines += [f"  {stage} to {to}: refused: {why}" for stage, to, why in self.refused]
        return "\n".join(lines if self.best else [*lines, "  no move gains 1%"])


class _Stages:
    """Told of each stage while a graph is traced: lists them, and moves one."""

    def __init__(self, stage: str = "", to: str = "") -> None:
        self._stage, self._to = stage, to
        self.functions: dict[str, str] = {}  # name: its stream
        self.pipelines: dict[str, Any] = {}  # name of its source: the pipeline

    def stream_of(self, name: str, stream: str) -> str:
        """The stream of a host function."""
        self.functions[name] = stream
        return self._to if name == self._stage else stream

    @contextlib.contextmanager
    def kernels_of(self, name: str, pipeline: Any) -> Iterator[None]:
        """The kernels of an input pipeline are traced inside."""
        self.pipelines[name] = pipeline
        scope: Any = contextlib.nullcontext()
        if name == self._stage:
            scope = stream_scope(self._to) if self._to.startswith("compute") else device_scope(self._to)
        with scope:
            yield


class _Trials:
    """Plans of the program, and their periods."""

    def __init__(self, make: Callable[[], Any], arguments: Any, cores: int | None) -> None:
        self._make, self._arguments = make, arguments
        self._cores = [] if cores is None else ["--cores", str(cores)]

    def plan(self, stages: _Stages) -> dict[str, Any]:
        graph = self._make()
        with within(moves=stages):
            graph.compile(*self._arguments)
        try:
            return dict(graph.plan)
        finally:
            graph.close()

    def seconds(self, plan: dict[str, Any]) -> float:
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "plan.json")
            with open(path, "w") as file:
                json.dump(plan, file)
            done = subprocess.run([find_tool("plan-viz"), "simulate", path, "--json", "--steps", str(_STEPS), *self._cores],
                                  capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"advise_placement: {done.stderr.strip()}")
        return float(json.loads(done.stdout)["period_ns"]) / 1e9


def _free(names: Any, kind: str) -> str:
    """A stream that nobody uses."""
    used = set(names)
    return next(name for n in range(1, len(used) + 2) if (name := f"{kind}:{n}") not in used)


def _streams(plan: dict[str, Any], kind: str) -> list[str]:
    indices = [stream["name"].partition(f"/{kind}")[2] for stream in plan["streams"] if f"/{kind}" in stream["name"]]
    return [f"{kind}:{int(i)}" for i in indices if i.isdigit()]


def _source_of(plan: dict[str, Any], name: str) -> dict[str, Any]:
    """The kernel that is the source of a pipeline."""
    found: dict[str, Any] = next(k for k in plan["kernels"] if k["op"] == "host_function" and k["attrs"].get("name") == name)
    return found


def _by_workers(plan: dict[str, Any], name: str, workers: float) -> dict[str, Any]:
    """The plan whose source takes batches from so many processes."""
    moved: dict[str, Any] = json.loads(json.dumps(plan))
    kernel = _source_of(moved, name)
    copied = sum(register["bytes"] for register in moved["registers"] if register["name"].split(".")[0] == kernel["name"])
    kernel["cost_ns"] = round(max(float(kernel["cost_ns"]) / workers, copied / _COPY * 1e9))
    return moved


def advise_placement(make: Callable[[], Any], *arguments: Any, devices: Any = (), workers: Any = (1, 2, 4), cores: int | None = None) -> Advice:
    """Says which stages of preprocessing to move, and what that would gain: each move is planned, and forecast in virtual time.

    make: makes the graph (an nn.Graph that is not compiled), each time a new one: `lambda: Training(net)`. arguments: of its call.
    Stages are the host functions, which could have streams of their own; the kernels of each input pipeline that build() calls, on a
    stream, or on one of `devices`, of their own; and functions of Python of a pipeline's map() before batch(), in `workers` processes. The
    time that a function takes is known from costs (config.enable_cost_cache(), config.set_cost_file()): without, it counts as free, and so
    do moves of it. cores: of the machine; by default those the plan is made for.
    """
    trials = _Trials(make, arguments, cores)
    stages = _Stages()
    plan = trials.plan(stages)
    now = trials.seconds(plan)
    moves, refused = [], []

    def add(stage: str, to: str, how: str, seconds: float) -> None:
        moves.append(Move(stage, to, how, seconds, 1 - seconds / now if now else 0.0))

    def tries(stage: str, to: str, how: str) -> None:
        try:
            add(stage, to, how, trials.seconds(trials.plan(_Stages(stage, to))))
        except _C.Error as error:
            refused.append((stage, to, str(error).splitlines()[0]))

    host = _free(["host:0", *_streams(plan, "host"), *stages.functions.values()], "host")
    compute = _free(["compute:0", *_streams(plan, "compute")], "compute")
    for name in stages.functions:
        tries(name, host, f'host_function({name}, ..., stream="{host}")')
    for name, pipeline in stages.pipelines.items():
        tries(name, compute, f'with sl.stream("{compute}"): the call of the pipeline')
        for device in devices:
            tries(name, str(device), f'with sl.device("{device}"): the call of the pipeline')
        before = pipeline._source.workers
        for count in workers if getattr(pipeline._source, "calls", False) else ():
            if count > before:
                seconds = trials.seconds(_by_workers(plan, name, count / max(before, 1)))
                add(name, f"{count} {'process' if count == 1 else 'processes'}", f"map(..., workers={count})", seconds)
    return Advice(now, tuple(sorted(moves, key=lambda m: m.seconds)), tuple(refused))
