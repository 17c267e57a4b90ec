"""Failures as scripts that stand alone."""

from __future__ import annotations

import inspect

from differential import compare, executor
from differential.check import check
from differential.generator import Generator
from differential.program import source
from differential.shrink import shrink
from differential.workers import isolated, prepare

MAIN = """

import sys

import torch as pytorch
import sluice

pytorch.set_num_threads(1)
theirs = run(pytorch, SOURCE, PROGRAM)
print("torch:", theirs.error[2] if theirs.error else "ran")
for in_graph in (False, True)[:1 + PROGRAM["graph"]]:
    ours = run(sluice, SOURCE, PROGRAM, in_graph)
    print("graph:" if in_graph else "eager:", ours.error[2] if ours.error else compare(ours, theirs, PROGRAM["precision"]) or "same")
"""


def reproducer(program, note=""):
    """A script that runs the program on torch and on Sluice and says where they differ."""
    options = {k: program[k] for k in ("steps", "training", "micro_batches", "config", "pipelined", "graph", "precision", "seed")}
    carried = [inspect.getsource(m) for m in (executor, compare)]
    carried[1] = carried[1].replace("from __future__ import annotations\n", "")
    head = "".join(f"# {line}\n" for line in note.splitlines()[:12])
    return f'{head}SOURCE = """\n{source(program)}"""\nPROGRAM = {options!r}\n\n' + "\n".join(carried) + MAIN


def shrunk(seed, switches, seconds, timeout):
    """The script of the smallest program found that fails as that of `seed` does."""
    sluice = prepare()
    program = isolated(lambda: Generator(switches)(seed), timeout)
    verdict = isolated(lambda: check(program, sluice), timeout)
    if not verdict.failed:
        return f"# it does not fail alone: {verdict.kind}\n" + reproducer(program)
    modes = [verdict.kind.split()[0]] if verdict.kind.split()[0] in ("eager", "graph") else ["eager", "graph"]

    def fails(candidate):
        return isolated(lambda: check(candidate, sluice, modes), timeout).signature == verdict.signature

    small = shrink(program, fails, seconds)
    last = isolated(lambda: check(small, sluice, modes), timeout)
    return reproducer(small, f"{last.kind}\n{last.text}")
