"""Cases of many ops: drawn, checked, and what failed told in a line each."""

from __future__ import annotations

import re
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable

from sluice._base import device as _device
from sluice._base.progress import with_progress
from sluice.testing.autotest.arrays import Case
from sluice.testing.autotest.check import Verdict, check
from sluice.testing.autotest.draw import Draw
from sluice.testing.autotest.generate import case_of
from sluice.testing.autotest.language import Row
from sluice.testing.autotest.modules import MODULES, module_case
from sluice.testing.autotest.names import signatures
from sluice.testing.autotest.rows import ROWS
from sluice.testing.autotest.shrink import shrunk

GRAPH_SHARE = 5  # one case of so many runs in a graph, too, and each until one has
# Functions that tell where a tensor is, or want it on the CPU.
OF_THE_CPU = re.compile(r"(Tensor\.)?(cpu|is_cpu|is_cuda|numpy|__array__|type|get_device|device|data_ptr)|typename|from_numpy|from_dlpack")


@dataclass
class Options:
    n: int = 20
    seed: int = 7
    graph: bool = False  # every case in a graph too
    spread: bool = False  # in the graph, over two devices
    first: int = 0
    shrink: bool = True
    device: str = "cpu"  # of Sluice's side; torch's is the CPU
    decomposed: bool = False  # in the graph, by primitive ops alone


@dataclass
class Tally:
    """The tally of one op: cases, those that torch took, that ran as graphs, and failures as (index, verdict, case), the
    first of each kind."""

    op: str
    cases: int = 0
    accepted: int = 0
    planned: int = 0
    failed: int = 0
    seconds: float = 0.0
    failures: list[tuple[int, Verdict, Case]] = field(default_factory=list)


def drawn(op: str, seed: int, index: int, library: Any) -> tuple[Case, Row, Draw]:
    """The case of that seed and index, whatever else is drawn."""
    draw = Draw(f"{seed} {op} {index}")
    if op in MODULES:
        case, row = module_case(op, draw, library)
    else:
        case, row = case_of(op, signatures(op) or [], ROWS.get(op, ""), draw)
    return case, row, draw


def run_op(op: str, library: Any, options: Options) -> Tally:
    tally, seen = Tally(op), set()
    for index in range(options.first, options.first + options.n):
        case, row, draw = drawn(op, options.seed, index, library)
        graph = options.graph or options.spread or options.decomposed or index % GRAPH_SHARE == 0 or not tally.planned
        how = {"graph": graph, "granularity": draw.pick(("program", "op")), "spread": options.spread,
               "decomposed": options.decomposed}
        verdict = check(case, row, library, **how)
        tally.cases += 1
        tally.accepted += verdict.accepted
        tally.planned += verdict.planned
        if verdict.failed:
            tally.failed += 1
            expected = verdict.signature
            if expected in seen:
                continue
            seen.add(expected)
            if options.shrink:
                case = shrunk(case, lambda c: check(c, row, library, **how).signature == expected)
                verdict = check(case, row, library, **how)
            tally.failures.append((index, verdict, case))
    return tally


def told(op: str, index: int, verdict: Verdict, case: Case, options: Options) -> str:
    """A failure: how to see it again, what differs, and the shrunk call."""
    flags = " --graph" * options.graph + " --global" * options.spread + " --decomp" * options.decomposed
    if options.device != "cpu":
        flags += f" --device {options.device}"
    return (f"python -m sluice.testing.autotest --ops {op} --seed {options.seed} --first {index} --n 1{flags}: "
            f"{verdict.how}: {verdict.text}: {case}")


def run(ops: Iterable[str], library: Any, options: Options, say: Callable[[str], None] = print) -> list[Tally]:
    """Each op in turn; failures are said as they are found."""
    tallies = []
    place: Any = nullcontext()
    if options.device != "cpu":
        place, ops = _device.device(options.device), [op for op in ops if not OF_THE_CPU.fullmatch(op)]
    with place:
        for op in with_progress(list(ops), "autotest"):
            began = time.monotonic()
            tally = run_op(op, library, options)
            tally.seconds = time.monotonic() - began
            tallies.append(tally)
            for index, verdict, case in tally.failures:
                say(told(op, index, verdict, case, options))
    return tallies
