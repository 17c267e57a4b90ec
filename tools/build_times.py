#!/usr/bin/env python3
"""Prints where the time of a build goes: by target, and the slowest objects. usage: build_times.py [BUILD_DIR] [--top N]

Times are those of ninja's log, on the clock: with other work on the machine, or more jobs than cores, they are longer than
the compiler's own.
"""
import argparse
import collections
import pathlib
import re

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("build", nargs="?", default="build/release", type=pathlib.Path)
parser.add_argument("--top", type=int, default=20)
options = parser.parse_args()

lines = (options.build / ".ninja_log").read_text().splitlines()[1:]
# The last entry of an output counts; commands with several outputs have one entry for each, with one hash.
seconds, hashes = {}, {}
for line in lines:
    begin, end, _, output, command = line.split("\t")
    seconds[output], hashes[output] = (int(end) - int(begin)) / 1000, command
steps = {hashes[output]: output for output in seconds}.values()


def kind_of(output):
    target = re.search(r"CMakeFiles/([^/]+)\.dir/", output)
    what = "precompiled headers" if output.endswith((".gch", ".pch")) else "objects" if output.endswith(".o") else "links and others"
    return target[1] if target and what != "links and others" else what, what


targets, kinds = collections.Counter(), collections.Counter()
numbers = collections.Counter()
for output in steps:
    target, kind = kind_of(output)
    targets[target] += seconds[output]
    kinds[kind] += seconds[output]
    numbers[target] += 1
print(f"{sum(kinds.values()):8.1f} s in {len(steps)} steps: " + ", ".join(f"{k} {s:.1f} s" for k, s in kinds.most_common()))
print("\nby target")
for target, total in targets.most_common(options.top):
    print(f"{total:8.1f} s {numbers[target]:4d} steps  {target}")
print("\nslowest")
for output in sorted(steps, key=seconds.get, reverse=True)[:options.top]:
    print(f"{seconds[output]:8.1f} s  {output}")
