"""python -m differential: see --help."""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time

from differential.report import reproducer, shrunk
from differential.switches import EXCLUDED, Switches
from differential.generator import Generator
from differential.workers import prepare, survey


def main():
    parser = argparse.ArgumentParser(prog="python -m differential", description="Random programs: torch, Sluice eagerly, Sluice as a graph.")
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--shrink", action="store_true", help="print a script for each failure, as small as can be found")
    parser.add_argument("--seconds", type=float, default=120, help="to shrink one program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=300, help="seconds after which a program hangs")
    parser.add_argument("--enable", action="append", default=[], metavar="NAME", help=f"draw what is excluded: all, {', '.join(e.name for e in EXCLUDED)}")
    parser.add_argument("--show", action="store_true", help="print the script of the first program and run nothing")
    parser.add_argument("--at-most", type=int, default=20, help="failures after which to stop")
    options = parser.parse_args()
    switches = Switches(options.enable)
    if options.show:
        prepare()
        print(reproducer(Generator(switches)(options.seed)))
        return 0
    start, kinds, failures = time.monotonic(), collections.Counter(), []
    for seed, verdict in survey(range(options.seed, options.seed + options.count), switches, options.jobs, options.timeout):
        kinds[verdict.kind] += 1
        if verdict.failed:
            failures.append(seed)
            print(f"seed {seed}: {verdict.kind}: {verdict.text.splitlines()[0][:300]}", flush=True)
        done = sum(kinds.values())
        if done % 500 == 0:
            print(f"{done} of {options.count} programs in {time.monotonic() - start:.0f} s: {dict(kinds)}", flush=True)
        if len(failures) >= options.at_most:
            break
    print(f"count: differential: {sum(kinds.values())} programs: {dict(kinds)}")
    if options.shrink:
        for seed in failures:
            print(f"\n# {'-' * 60} seed {seed}\n" + shrunk(seed, switches, options.seconds, options.timeout), flush=True)
    return bool(failures)


sys.exit(main())
