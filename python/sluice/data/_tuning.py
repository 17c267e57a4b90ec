"""How many workers, cores and batches in work a pipeline has: chosen at borders of epochs, from what its stages were measured to take,
within a budget of memory."""

from __future__ import annotations

import collections
import dataclasses
import math
import os
import random
import statistics
import sys
import time
from typing import Any, Callable, NamedTuple

_WARM = 2  # batches of a plan that do not count: the first ones wait for what happens once
_ENOUGH = 6  # batches that tell what there is to know
_LATEST = 256
_SIMULATED = 96  # batches
_DEPTHS = (1, 2, 3, 4, 6, 8)
_MOST_WORKERS = 4  # for each core: they take time to start, and memory
_NO_GAIN = 0.01  # less than that is none
_WORKER_BYTES = 24 << 20  # of a worker's own, until one has said what it takes
START_SECONDS = 0.03  # of a worker, until some were started


class Setting(NamedTuple):
    """The three numbers that are chosen."""

    workers: int  # processes that call functions of Python; 0: the plan's thread does
    cores: int  # of the kernels
    depth: int  # batches in work ahead of the one that is asked for

    def __str__(self) -> str:
        return ", ".join(f"{n} {what}{'' if n == 1 else more}" for n, what, more in zip(self, ("worker", "core", "batch"), ("s", "s", "es")))


@dataclasses.dataclass(frozen=True)
class Costs:
    """The seconds and bytes that a batch takes."""

    made: tuple[float, ...] = (0.0,)  # by functions of Python in one process; a number for each batch that was measured
    made_busy: float = 0.0  # of that a core computes
    read: float = 0.0  # by the plan's thread besides
    kernels: float = 0.0  # on one core
    user: tuple[float, ...] = (0.0,)  # by whoever asks for batches, between two of them
    user_busy: float = 0.0
    source_bytes: int = 0  # as workers make it
    result_bytes: int = 0  # as it is handed out
    worker_bytes: int = _WORKER_BYTES  # of a process
    start: float = 0.0  # of a process, until it makes batches
    batches: float = math.inf  # for which workers are started


def bound(costs: Costs, setting: Setting, cores: int) -> float:
    """Seconds of a batch that its stages cannot be faster than, on a machine with so many cores."""
    made = statistics.fmean(costs.made)
    host = costs.read + (0 if setting.workers else made)
    busy = costs.made_busy + costs.read + costs.kernels + costs.user_busy
    longest = max(host, made / max(setting.workers, 1), costs.kernels / setting.cores, statistics.fmean(costs.user), busy / cores)
    return longest + _starting(costs, setting)


def _starting(costs: Costs, setting: Setting) -> float:
    """The share of a batch in the start of workers, which each pass has anew."""
    return setting.workers * costs.start / costs.batches


def forecast(costs: Costs, setting: Setting, cores: int) -> float:
    """Seconds of a batch in virtual time: each stage takes what it was measured to take, in an order that is drawn."""
    draw = random.Random(0)
    workers, depth = setting.workers, setting.depth
    in_work = 2 * workers  # as workers have
    asked, made, read, done = [0.0], [], [], []
    free = [0.0] * max(workers, 1)
    for n in range(_SIMULATED):
        made_in = draw.choice(costs.made)
        submitted = asked[max(n - depth, 0)]
        ready = submitted
        if workers:
            sent = read[n - in_work] if n >= in_work else 0.0
            free[n % workers] = max(free[n % workers], sent) + made_in
            ready = max(ready, free[n % workers])
        slot = done[n - 2] if n >= 2 else 0.0
        read.append(max(read[-1] if read else 0.0, ready, slot) + costs.read + (0 if workers else made_in))
        done.append(max(done[-1] if done else 0.0, read[-1]) + costs.kernels / setting.cores)
        made.append(ready)
        asked.append(max(asked[-1], done[-1]) + draw.choice(costs.user))
    half = _SIMULATED // 2
    return max((asked[-1] - asked[half]) / (_SIMULATED - half) + _starting(costs, setting), bound(costs, setting, cores))


@dataclasses.dataclass(frozen=True)
class Choice:
    """The setting that was chosen, what a batch takes then, and what one step more would gain."""

    setting: Setting
    seconds: float
    bytes: int
    memory: int
    next_setting: Setting | None = None
    next_seconds: float = 0.0
    next_bytes: int = 0

    def __str__(self) -> str:
        text = f"{self.setting}: {_time(self.seconds)} a batch, {_size(self.bytes)} of {_size(self.memory)}"
        if self.next_setting is None:
            return f"{text}; no step more would gain {_NO_GAIN:.0%}"
        gain = 1 - self.next_seconds / self.seconds
        over = "" if self.next_bytes <= self.memory else f", with {_size(self.next_bytes)}, which is over the budget"
        return f"{text}; {self.next_setting} would take {gain:.0%} less{over}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


@dataclasses.dataclass(frozen=True)
class Chooser:
    """The facts on which a choice depends, besides costs: bytes of a plan by its cores, the machine's cores, the budget, whether there are functions
    that workers could call; if not, how many there are."""

    plan_bytes: Callable[[int], int]
    cores: int
    memory: int
    functions: bool
    workers: int = 0

    def bytes(self, costs: Costs, setting: Setting) -> int:
        workers = setting.workers * (2 * costs.source_bytes + costs.worker_bytes)
        return self.plan_bytes(setting.cores) + (setting.depth + 1) * costs.result_bytes + workers

    def settings(self, costs: Costs) -> list[Setting]:
        """All workers and cores that could make sense, with the least depth."""
        least = most = self.workers
        if self.functions:
            least = 0
            without = Costs(**{**vars(costs), "made": (0.0,)})
            fastest = max(bound(without, Setting(0, self.cores, 1), self.cores), 1e-9)
            most = min(math.ceil(statistics.fmean(costs.made) / fastest * 1.5) + 1, _MOST_WORKERS * self.cores)  # more than that is idle
        cores = sorted({*(2**i for i in range(self.cores.bit_length())), self.cores})
        return [Setting(w, c, 1) for w in range(least, most + 1) for c in cores if c <= self.cores]

    def choose(self, costs: Costs) -> Choice:
        """The fastest setting within the budget; of those that are as fast, the one with the fewest bytes."""
        all_settings = [(s, bound(costs, s, self.cores)) for s in self.settings(costs)]
        fitting = [(s, b) for s, b in all_settings if self.bytes(costs, s) <= self.memory]
        if not fitting:
            least = min(self.bytes(costs, s) for s, _ in all_settings)
            raise ValueError(f"autotune: memory: {self.memory} bytes; the least setting takes {least} bytes, as far as was measured")
        within = 1.05 * min(b for _, b in fitting)
        near = sorted((s for s, b in fitting if b <= within), key=lambda s: self.bytes(costs, s))[:8]
        tried = {s: forecast(costs, s, self.cores) for one in near for d in _DEPTHS
                 if self.bytes(costs, s := one._replace(depth=d)) <= self.memory}
        enough = (1 + _NO_GAIN) * min(tried.values())
        best = min((s for s, seconds in tried.items() if seconds <= enough), key=lambda s: (self.bytes(costs, s), sum(s)))
        return self._with_next(costs, Choice(best, tried[best], self.bytes(costs, best), self.memory))

    def _with_next(self, costs: Costs, choice: Choice) -> Choice:
        s = choice.setting
        steps = [s._replace(depth=s.depth + 1)]
        if self.functions:
            steps.append(s._replace(workers=s.workers + 1))
        if s.cores < self.cores:
            steps.append(s._replace(cores=min(2 * s.cores, self.cores)))
        seconds, step = min((forecast(costs, one, self.cores), one) for one in steps)
        if seconds > (1 - _NO_GAIN) * choice.seconds:
            return choice
        return dataclasses.replace(choice, next_setting=step, next_seconds=seconds, next_bytes=self.bytes(costs, step))


class Spent(NamedTuple):
    """The share of functions of Python in a batch: seconds, those of a core, and bytes of the worker's own, or 0."""

    seconds: float = 0.0
    busy: float = 0.0
    bytes: int = 0


def own_bytes() -> int:
    """The memory of this process that no other has, too; 0 where the system does not say."""
    try:
        with open("/proc/self/smaps_rollup") as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_"))
    except OSError:
        return 0


class Meter:
    """Measures the batches of one plan."""

    def __init__(self) -> None:
        self.reads: Any = collections.deque(maxlen=_LATEST)  # (seconds, those of a core, Spent), by the plan's thread
        self._users: Any = collections.deque(maxlen=_LATEST)
        self._left: float | None = None
        self._begun: Any = None
        self._count = 0

    def handed_out(self) -> None:
        self._count += 1
        if self._count == _WARM:
            self.reads.clear()
            self._users.clear()
            self._begun = time.process_time()
        self._left = time.perf_counter()

    def asked(self) -> None:
        if self._left is not None:
            self._users.append(time.perf_counter() - self._left)
        self._left = None

    def costs(self, counters: Any, setting: Setting, source_bytes: int, result_bytes: int) -> Costs | None:
        """The costs that were measured here and by the plan's counters; None where these are too few batches."""
        reads, count = list(self.reads), self._count - _WARM
        if count < _ENOUGH or len(reads) < _ENOUGH:
            return None
        busy = {True: 0.0, False: 0.0}  # of the host's stream, and of others, in seconds a batch
        for actor in counters["actors"]:
            busy["/host" in actor["stream"]] += actor["busy_ns"] / max(actor["firings"], 1) / 1e9
        spent = [s for _, _, s in reads]
        made_busy = statistics.fmean(s.busy for s in spent)
        wall = statistics.fmean(seconds for seconds, _, _ in reads)
        if setting.workers:
            read = statistics.fmean(core for _, core, _ in reads)  # besides, it waits for workers
        else:
            read = wall - statistics.fmean(s.seconds for s in spent)
        kernels = busy[False] * setting.cores
        all_busy = (time.process_time() - self._begun) / count
        own = max((s.bytes for s in spent), default=0)
        users = tuple(self._users) or (0.0,)
        user_busy = min(max(all_busy - kernels - read - (0 if setting.workers else made_busy), 0.0), statistics.fmean(users))
        return Costs(tuple(s.seconds for s in spent), made_busy, max(read, 0.0), kernels, users, user_busy, source_bytes, result_bytes,
                     own or _WORKER_BYTES)


def told(choice: Choice) -> None:
    print(f"data: autotune: {choice}", file=sys.stderr)


def free_memory() -> int:
    """The bytes that the machine could give."""
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
