"""The command: python -m sluice.testing.autotest."""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import random
import sys
from typing import Any

from sluice.testing.autotest import names
from sluice.testing.autotest.run import Options, run


def chosen(text: str, every: list[str]) -> list[str]:
    """The ops of "all" or of names and patterns between commas."""
    found: list[str] = []
    for pattern in text.split(","):
        matching = every if pattern == "all" else fnmatch.filter(every, pattern)
        if not matching:
            raise LookupError(f"--ops: no op is named {pattern!r}; --list prints all of them")
        found += matching
    return list(dict.fromkeys(found))


def main(arguments: Any = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sluice.testing.autotest", description="Random calls, compared with torch.")
    parser.add_argument("--ops", default="all", help="all, or names and patterns as 'add,nn.functional.*,Tensor.view'")
    parser.add_argument("--n", type=int, default=20, help="cases of each op")
    parser.add_argument("--seed", type=int, help="of the cases; without it one is drawn and printed")
    parser.add_argument("--first", type=int, default=0, help="the index of the first case")
    parser.add_argument("--graph", action="store_true", help="every case in an nn.Graph, too: forward and backward")
    parser.add_argument("--global", dest="spread", action="store_true", help="in the graph, over two simulated devices")
    parser.add_argument("--decomp", dest="decomposed", action="store_true", help="in the graph, by primitive ops alone (sluice.prims)")
    parser.add_argument("--device", default="cpu", help="where Sluice computes: cpu, sim:0, cuda:0, ...; torch does on the CPU")
    parser.add_argument("--list", action="store_true", help="print the ops that have cases")
    parser.add_argument("--list-uncovered", action="store_true", help="print exported names without cases; fails if there are any")
    parser.add_argument("--no-shrink", action="store_true", help="print failing calls as they were drawn")
    parser.add_argument("--times", action="store_true", help="print the ops that took longest")
    options = parser.parse_args(arguments)
    try:
        library = importlib.import_module("torch")
    except ImportError:
        parser.error("torch: not installed; it is what Sluice is compared with (pip install torch)")
    library.set_num_threads(1)
    if options.list_uncovered:
        left = names.uncovered(library)
        print(*left, sep="\n", end="\n" if left else "")
        return int(bool(left))
    every = names.ops(library)
    if options.list:
        print(*every, sep="\n")
        return 0
    try:
        ops = chosen(options.ops, every)
    except LookupError as error:
        parser.error(str(error.args[0]))
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}")
    tallies = run(ops, library,
                  Options(options.n, seed, options.graph, options.spread, options.first, not options.no_shrink, options.device,
                          decomposed=options.decomposed))
    failed = [t for t in tallies if t.failures]
    print(f"{len(tallies)} ops, {sum(t.cases for t in tallies)} cases, of which torch takes {sum(t.accepted for t in tallies)}; "
          f"{sum(t.failed for t in tallies)} fail, of {len(failed)} ops")
    if options.times:
        for t in sorted(tallies, key=lambda t: -t.seconds)[:25]:
            print(f"{t.seconds:6.2f} s  {t.accepted}/{t.cases}  {t.op}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
