"""One program on torch and on Sluice."""

from __future__ import annotations

import dataclasses
import re

import torch
from differential.compare import compare, spread_of
from differential.executor import run
from differential.program import source
from differential.switches import refusal_is_known

NOISES = (1, 2, 3)


@dataclasses.dataclass
class Verdict:
    """kind: "same", "refused" (known), "unstable" (torch itself moves as far), or what is wrong: "eager differs", ..."""

    kind: str
    text: str = ""

    @property
    def signature(self):
        """The part that stays the same while the program is made smaller."""
        message = self.text.partition(": ")[2] if "refused" in self.kind else ""
        message = message.partition("\n")[0]
        return self.kind, re.sub(r"'[^']*'|\d+|\([^)]*\)", "_", message)[:60]

    @property
    def failed(self):
        return self.kind not in ("same", "refused", "unstable")


def check(program, sluice, modes=("eager", "graph"), theirs=None):
    """theirs: torch's run of the program, if there is one already."""
    text = source(program)
    theirs = theirs or run(torch, text, program)
    if theirs.error:
        return Verdict("invalid", f"torch: {theirs.error[1]!r}")
    kinds = set()
    spread = None
    for mode in modes:
        if mode == "graph" and not program["graph"]:
            continue
        ours = run(sluice, text, program, in_graph=mode == "graph")
        if ours.error:
            where, error, trace = ours.error
            if refusal_is_known(str(error)):
                kinds.add("refused")
                continue
            return Verdict(f"{mode} refused: {type(error).__name__}", f"{where}: {error}\n{trace}")
        difference = compare(ours, theirs, program["precision"])
        if difference and spread is None:
            spread = spread_of(theirs, [run(torch, text, program, noise=n) for n in NOISES])
        if difference and compare(ours, theirs, program["precision"], spread) is None:
            kinds.add("unstable")
        elif difference:
            return Verdict(f"{mode} differs", compare(ours, theirs, program["precision"], spread))
    return Verdict(sorted(kinds, key=["unstable", "refused"].index)[0] if kinds else "same")
