"""One case on torch and on Sluice, in every way in which it can be called."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import sluice
from sluice.testing.autotest.arrays import Array, Case
from sluice.testing.autotest.compare import LIMITS, alias_difference, difference
from sluice.testing.autotest.exceptions import known
from sluice.testing.autotest.execute import Outcome, execute, execute_form, forms_of
from sluice.testing.autotest.language import Row

PRECISION = ("float64", "float32", "float16", "bfloat16")  # from the best
REAL = {"complex64": "float32", "complex128": "float64"}


@dataclass
class Verdict:
    """text: what differs, or "" where nothing does. accepted: torch takes the call. refused: graphs refuse it, which is known."""

    text: str
    accepted: bool = False
    how: str = ""
    planned: bool = False  # it ran as a graph, too

    @property
    def failed(self) -> bool:
        return bool(self.text)

    @property
    def signature(self) -> tuple[str, str]:
        """The part that stays the same while the case is made smaller."""
        return self.how, re.sub(r"[\d.+-]+(e-?\d+)?|\([^)]*\)|\[.*", "_", self.text.partition(": got")[0])[:48]


def check(case: Case, row: Row, library: Any, graph: bool = False, granularity: str = "program", spread: bool = False,
          forms: bool = True, decomposed: bool = False) -> Verdict:
    """library: torch."""
    floating = [REAL.get(a.dtype, a.dtype) for a in case.arrays if a.floating]
    precision = max([*floating, "float64" if floating else "float32"], key=PRECISION.index)
    order = 0 if "grad" in row.without else 2 if "double" not in row.without and precision == "float64" else 1
    if not all(np.isfinite(a.values).all() for a in case.arrays if a.floating):
        order = 0  # gradients there are not defined
    theirs = execute(case, library, order)
    if theirs.error is not None and "not differentiable with respect" in str(theirs.error):  # of the first argument alone
        first = case.arrays[0]
        case = with_arrays(case, lambda a: replace(a, parameter=a is first))
        theirs = execute(case, library, order)
    given = [REAL.get(v[1], v[1]) for _, v in theirs.values if isinstance(v, tuple)]
    precision = max([precision, *(d for d in given if d in PRECISION)], key=PRECISION.index)
    if theirs.error is not None and theirs.stage != "forward" and order:
        theirs = execute(case, library, order - 1) if theirs.stage.startswith("second") else execute(case, library, 0)
        order = order - 1 if theirs.error is None and order == 2 else 0
        theirs = execute(case, library, order)
    mine = execute(case, sluice, order)
    factor = 10.0 if "strict" not in row.without else 1000.0
    exact: list[Outcome] = []

    def truth() -> Outcome:
        if not exact:
            exact.append(execute(case, library, order, wide=True))
        return exact[0]

    verdict = Verdict("", theirs.error is None)

    def judged(text: str | None, how: str) -> bool:
        if text is None or known(case.op, how, text, str(case)):
            return False
        verdict.text, verdict.how = text, how
        return True

    if judged(difference(mine, theirs, precision, factor, truth), "eager"):
        return verdict
    if theirs.error is not None or mine.error is not None:
        return verdict
    if judged(alias_difference(mine, theirs), "eager"):
        return verdict
    if forms and "forms" not in row.without:
        for (how, form), (_, other) in zip(forms_of(case, sluice, library), forms_of(case, library, sluice)):
            reference = execute_form(case, library, other)
            got = execute_form(case, sluice, form)
            if how.endswith("(out=)") and isinstance(reference.error, TypeError):
                continue  # torch has no out= here
            if judged(difference(got, reference, precision, factor, None if how[-1] == "_" else lambda: Outcome()), how):
                return verdict
    if graph and "graph" not in row.without and mine.error is None:
        from sluice.testing.autotest.graphs import execute_graph

        planned = execute_graph(case, order, granularity, spread, decomposed)
        verdict.planned = planned.error is None
        places = dict(planned.values)
        reference = Outcome([(p, v) for p, v in theirs.values if p.startswith(("output", "gradient"))])
        if planned.error is None:
            planned.values = [(p, places.get(p)) for p, _ in reference.values]
        how = "global" if spread else "graph of primitives" if decomposed else "graph"
        if planned.error is not None and LIMITS.search(str(planned.error)) and known(case.op, how, str(planned.error), str(case)):
            return verdict
        judged(difference(planned, reference, precision, factor, truth), how)
    return verdict


def with_arrays(case: Case, change: Any) -> Case:
    return case.replaced(lambda v: change(v) if isinstance(v, Array) else v)
