"""The part of Pipeline that measures: how much it takes, and how it is tuned."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from sluice._graph.config import bytes_of
from sluice._tensor.functions import get_num_threads
from sluice.data._mapped import Mapped
from sluice.data._running import Plan
from sluice.data._stages import Decode
from sluice.data._statistics import StageUse, Statistics, new_meter, of_images, of_padding, of_registers
from sluice.data._tuning import START_SECONDS, Choice, Chooser, Costs, Setting, forecast, free_memory, told

_SLUGGISH = 0.02  # another setting must gain more than that, since batches in work are made again


class Tuning:
    """The state of Pipeline.autotune(). `memory`: bytes; `cores`: of the machine."""

    def __init__(self, memory: int, cores: int) -> None:
        self.memory, self.cores = memory, cores
        self.choice: Choice | None = None
        self._plans: dict[int, int] = {}  # bytes by cores
        self._start = START_SECONDS

    def anew(self) -> Tuning:
        return Tuning(self.memory, self.cores)

    def setting(self, pipeline: Any) -> Setting:
        """The setting in force: before the first choice, what the pipeline says."""
        if self.choice is not None:
            return self.choice.setting
        return Setting(pipeline._source.workers, min(get_num_threads(), self.cores), pipeline._depth)

    def set_workers(self, source: Any) -> None:
        if self.choice is not None and isinstance(source, Mapped):
            source.workers = self.choice.setting.workers

    def check(self, pipeline: Any, plan: Any) -> None:
        """Raises ValueError where the budget cannot hold the least setting."""
        pipeline.memory()
        least = self._chooser(pipeline).bytes(Costs(result_bytes=_results(plan)), Setting(0, 1, 1))
        if least > self.memory:
            raise ValueError(f"autotune: memory: {self.memory} bytes; the least setting takes {least} bytes")

    def chooses(self, pipeline: Any, plan: Any) -> bool:
        """At a border of epochs: whether there is another setting from now on."""
        now, chooser = self.setting(pipeline), self._chooser(pipeline)
        costs = plan.feed.meter.costs(plan.graph.counters(), now, _bytes(pipeline._source.parts(pipeline._size)), _results(plan))
        if costs is None:
            return False
        costs = dataclasses.replace(costs, **self._starts(pipeline, plan))
        choice, slow = chooser.choose(costs), forecast(costs, now, self.cores)
        if self.choice is not None and chooser.bytes(costs, now) <= self.memory and choice.seconds > (1 - _SLUGGISH) * slow:
            return False
        self.choice = choice
        told(choice)
        return choice.setting != now

    def _starts(self, pipeline: Any, plan: Any) -> dict[str, float]:
        """The seconds that a worker takes to start, and the batches of a pass, for which it does."""
        source = plan.feed._source
        if isinstance(source, Mapped) and source.workers and source.start_seconds != START_SECONDS:
            self._start = source.start_seconds
        return {"start": self._start, "batches": math.inf if pipeline._epochs is None else max(len(pipeline), 1)}

    def _chooser(self, pipeline: Any) -> Chooser:
        def plan_bytes(cores: int) -> int:
            if cores not in self._plans:
                tried = Plan(pipeline, pipeline._place, cores).graph
                self._plans[cores] = pipeline._held(tried, cores)["total"]
                tried.close()
            return self._plans[cores]

        functions = isinstance(pipeline._source, Mapped) and pipeline._source.calls
        return Chooser(plan_bytes, self.cores, self.memory, functions, pipeline._source.workers)


def _results(plan: Any) -> int:
    """Bytes of a batch as it is handed out."""
    return sum(int(np.prod(shape)) * dtype.itemsize for _, dtype, shape in plan.graph.outputs)


def _bytes(parts: Any) -> int:
    return sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in parts)


class Measured:
    """The part of Pipeline that says what it takes, and chooses how it is set."""

    _with: Any
    _plan: Plan | None
    _place: Any
    _depth: int
    _source: Any
    _stages: list[Any]
    _tuning: Tuning | None
    _meter: int
    _longest: int
    _ragged: int
    _size: int

    def autotune(self, memory: Any = None, cores: int | None = None) -> Any:
        """Chooses workers of map(), cores of kernels and batches in work by itself, at each border of epochs: the fastest that was found, from
        what a batch has taken in each stage, within a budget of memory. One line says what was chosen, and what one step more would
        gain; `tuned` has it. Batches are the same bytes, and none is lost or comes twice; those in work at the border are made again.

        memory: bytes, or "2GiB", of the plan, batches in work, and worker processes; by default half of what is free. It holds from the
        first choice on, and one that it cannot hold is an error. cores: of the machine, by default those of set_num_threads().
        In the plan of a graph, the compiler sees to cores and slots: config.enable_cost_cache().
        """
        budget = free_memory() // 2 if memory is None else bytes_of("autotune: memory", memory)
        if cores is not None and cores < 1:
            raise ValueError(f"autotune: cores: {cores}; must be at least 1")
        return self._with(_tuning=Tuning(budget, cores or get_num_threads()))

    @property
    def tuned(self) -> Choice | None:
        """The last choice of autotune(): its `setting` (workers, cores, depth), `seconds` a batch, `bytes`; None before the first."""
        return None if self._tuning is None else self._tuning.choice

    def _retuned(self) -> bool:
        """At a border of epochs: whether another plan takes the place of this one."""
        if self._tuning is None or self._plan is None or not self._tuning.chooses(self, self._plan):
            return False
        self._plan.end()
        self._plan = Plan(self, self._place)
        return True

    def _cores(self) -> int:
        return get_num_threads() if self._tuning is None else self._tuning.setting(self).cores

    def _ahead(self) -> int:
        """Batches in work."""
        return self._depth if self._tuning is None else self._tuning.setting(self).depth

    def memory(self) -> dict[str, int]:
        """Bytes, known before the first batch: `plan`, all slots and workspaces; `decoders`, which libjpeg and libpng may take besides,
        for files that come in several passes; `cache`, what cache() keeps in memory; `total`. Worker processes have memory of their own."""
        if self._plan is None:
            self._plan = Plan(self, self._place)
        return self._held(self._plan.graph, self._cores())

    def _held(self, graph: Any, cores: int) -> dict[str, int]:
        """memory() with a plan of so many cores."""
        if not graph.is_compiled:
            graph.compile()
        held = graph.memory()["total"]
        decoders = sum(cores * s.limits["max_decoder_bytes"] for s in self._stages if isinstance(s, Decode))
        return {"plan": held, "decoders": decoders, "cache": self._source.kept, "total": held + decoders + self._source.kept}

    def _metered(self) -> int:
        """The number under which decode() counts what images take, in all plans of this pipeline."""
        if not self._meter and any(isinstance(s, Decode) for s in self._stages):
            self._meter = new_meter()
        return self._meter

    def statistics(self) -> Statistics:
        """The memory that memory() has set aside for each stage, and the most that the batches so far have used of it; the sizes that
        decode() allows of files and images, and the largest that came. Each line is a StageUse, with a hint where less would do,
        or more is wanted; str() is a table."""
        held = self.memory()
        assert self._plan is not None
        rows = of_registers(self._plan.graph.plan, self._plan.graph.counters())
        rest = held["plan"] - sum(row.reserved for row in rows)
        rows.append(StageUse("plan", "workspaces", rest, rest, memory=True))
        for stage in self._stages:
            if isinstance(stage, Decode):
                rows += of_images(stage.limits, self._metered(), self._cores())
        if held["cache"]:
            rows.append(StageUse("cache", "samples", held["cache"], held["cache"], memory=True))
        if self._ragged:
            rows.append(of_padding(self._ragged, self._longest, _bytes(self._source.parts(self._size)[:1])))
        return Statistics(rows)
