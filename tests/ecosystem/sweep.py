"""python -m ecosystem.sweep ZOO [--cases WORDS] [--steps WORDS] [--workers N] [--seconds S] [--known] [--again TEXT] [--gather]: tries a zoo.

Each answer is a file of its own, so that programs may share the work, and what has an answer is not tried again. A case that ends its
process, or takes too long, costs that process only.
--known: begins with the answers of results.json.  --again TEXT: what has an answer with this regular expression in it is tried again.
--gather: writes the answers into results.json.  Cases are tried in an order that mixes them: what is known early is a sample of all.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
import zlib
from pathlib import Path
from typing import Any, Iterable, Iterator, Optional, Sequence

from ecosystem.beside import ROOT
from ecosystem.compare import STEPS, UNTRIED

FOLDER = ROOT / "build/ecosystem"
MEMORY = 4 << 30  # resident bytes with which a worker makes room for the next
CASES = 40  # after which it does so, too
MORE = 75  # a worker's exit status where others may go on
WALL = 30  # times the processors' time that a case may take, on a machine with other work


def answer_file(zoo: str, case: str) -> Path:
    return FOLDER / zoo / f"{case}.json"


def answers(zoo: str) -> dict[str, Any]:
    """By case, what was found so far."""
    return {p.stem: json.loads(p.read_text()) for p in sorted((FOLDER / zoo).glob("*.json"))}


def answered(zoo: str, case: str, steps: Sequence[str]) -> bool:
    """Whether there is an answer about these steps."""
    file = answer_file(zoo, case)
    found = json.loads(file.read_text()) if file.exists() else dict.fromkeys(steps, UNTRIED)
    return not any(found.get(step) == UNTRIED for step in steps)


def begin(zoo: str) -> None:
    """Takes the answers of results.json for those cases that have none here."""
    from ecosystem.results import read

    for case, found in read()["zoos"].get(zoo, {}).items():
        if not answer_file(zoo, case).exists():
            answer_file(zoo, case).write_text(json.dumps(found, indent=1) + "\n")


def mixed(cases: Iterable[str]) -> list[str]:
    """The cases in an order that has nothing to do with their names, the same each time."""
    return sorted(cases, key=lambda case: zlib.crc32(case.encode()))


def write(zoo: str, case: str, found: Any, steps: Sequence[str]) -> None:
    """All of an answer or nothing of it. What is known of other steps stays."""
    target = answer_file(zoo, case)
    if target.exists() and "excluded" not in found:
        known = json.loads(target.read_text())
        if "all" in found and "all" not in known:
            found = dict.fromkeys(steps, found["all"])
        found = {step: why for step, why in known.items() if step in STEPS and step not in steps} | {
            step: why for step, why in found.items() if step not in STEPS or step in steps}
    part = target.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(found, indent=1) + "\n")
    part.rename(target)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return True
    except OSError:
        return False


def claimed(zoo: str, cases: list[str], steps: Sequence[str]) -> Iterator[str]:
    """The cases that nobody has an answer to or works at; each is this process's until it goes on."""
    for case in cases:
        mine = answer_file(zoo, case).with_suffix(".claim")
        if answered(zoo, case, steps):
            continue
        try:
            handle = os.open(mine, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            continue
        with os.fdopen(handle, "w") as file:
            file.write(f"{os.getpid()} {time.time()}")
        try:
            if not answered(zoo, case, steps):  # it may have come meanwhile
                yield case
        finally:
            mine.unlink()


def unwatched() -> None:
    """Graphs do not watch for changes after their first call, of which a sweep makes no other: to find what could change takes longer
    than all else. The pinned cases of the tests do watch."""
    from sluice._graph import graph

    class Unwatched(graph.Watch):
        def reading(self, *args: Any, **kwargs: Any) -> Any:
            return contextlib.nullcontext()

        def finish(self, *args: Any) -> None:
            pass

        def changed(self, graph: Any) -> Optional[str]:
            return None

        def identities(self) -> Any:
            return None

    graph.Watch = Unwatched


def work(zoo: str, cases: list[str], steps: Sequence[str], seconds: int) -> int:
    """Tries cases until there is none left, or much memory is in use."""
    import torch

    from ecosystem import transformers_models
    from ecosystem.results import tried

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if zoo in ("transformers", "generation"):
        transformers_models.both()
    unwatched()
    gc.disable()  # it would look through millions of objects again and again
    for number, case in enumerate(claimed(zoo, cases, steps), 1):
        gc.collect()
        gc.freeze()  # nor for each case
        start = time.monotonic()
        options = {} if zoo == "generation" else {"steps": steps}
        found = tried(zoo, case, seconds=seconds, **options)
        write(zoo, case, found, steps)
        print(f"{zoo} {case}: {found or 'right'} ({time.monotonic() - start:.0f} s)", flush=True)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        if pages * os.sysconf("SC_PAGE_SIZE") > MEMORY or number == CASES:
            return MORE
    return 0


def _claim_of(zoo: str, pid: int) -> Optional[tuple[str, float]]:
    """The case that a process works at, and since when."""
    for file in (FOLDER / zoo).glob("*.claim"):
        try:
            said = file.read_text().split()
        except FileNotFoundError:
            continue
        if said and int(said[0]) == pid:
            return file.stem, float(said[1])
    return None


def watch(zoo: str, cases: list[str], steps: Sequence[str], workers: int, seconds: int) -> None:
    """Keeps workers at work until all cases have answers; says of what a worker ended at, that it did."""
    for file in (FOLDER / zoo).glob("*.claim"):  # of programs that were ended
        said = file.read_text().split()
        if not said or not _alive(int(said[0])):
            file.unlink(missing_ok=True)
    command = [sys.executable, "-W", "ignore", "-m", "ecosystem.sweep", zoo, "--worker", "--seconds", str(seconds), "--steps", *steps,
               "--cases", *cases]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(workers)]
    while running:
        try:
            running[0].wait(timeout=1)
        except subprocess.TimeoutExpired:
            pass
        for worker in list(running):
            claim = _claim_of(zoo, worker.pid)
            if worker.poll() is None:
                if claim and time.time() - claim[1] > WALL * seconds:
                    worker.send_signal(signal.SIGKILL)
                continue
            running.remove(worker)
            if claim:
                why = signal.Signals(-worker.returncode).name if worker.returncode < 0 else f"status {worker.returncode}"
                write(zoo, claim[0], {"all": f"the process ended: {why}"}, steps)
                answer_file(zoo, claim[0]).with_suffix(".claim").unlink(missing_ok=True)
            if claim or worker.returncode == MORE:
                running.append(subprocess.Popen(command, start_new_session=True))


def gather(zoo: str) -> int:
    """Writes the answers where the page and the tests read them; how many there are."""
    from ecosystem.results import keep_all

    found = answers(zoo)
    keep_all(zoo, found)
    return len(found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ecosystem.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zoo")
    parser.add_argument("--cases", nargs="*")
    parser.add_argument("--steps", nargs="*", choices=STEPS, default=STEPS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=120, help="of the processors' time, for a case")
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--again", metavar="TEXT")
    parser.add_argument("--gather", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    (FOLDER / options.zoo).mkdir(parents=True, exist_ok=True)
    if options.worker:
        return work(options.zoo, options.cases, options.steps, options.seconds)
    if options.gather:
        print(f"count: {gather(options.zoo)} answers")
        return 0
    if options.known:
        begin(options.zoo)
    known = answers(options.zoo)
    again = [case for case, found in known.items() if options.again is not None and re.search(options.again, json.dumps(found))]
    for case in again:
        answer_file(options.zoo, case).unlink()
    if options.cases is None and options.again is None:
        from ecosystem.results import ZOOS

        options.cases = mixed(ZOOS[options.zoo][0])
    watch(options.zoo, options.cases if options.cases is not None else again, options.steps, options.workers, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
