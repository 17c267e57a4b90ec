"""Lists what programs leave out, and what may be refused, each with its reason. Empty tables are the aim."""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Excluded:
    """Statements that are not drawn, because of a known defect.

    pattern: a regular expression of the statement; where it is "", only `Switches.allows(name)` asks.
    """

    name: str
    pattern: str
    reason: str


EXCLUDED = [
    Excluded("hardsigmoid", r"hardsigmoid|hardswish", "torch computes the gradient with a sixth in float32, also of float64"),
    Excluded("data", r"\.data\b", "torch does not see writes through .data; here the gradient that needs the old values is refused"),
    Excluded("layout", "", "results of operations are contiguous here, so that reshape() may be a view where torch copies, and a write shows"),
    Excluded("written_parameter", "", "with micro-batches, a parameter that build() writes to and an optimizer updates is refused: it has one update"),
]

# (regular expression of the message, why torch runs it and Sluice need not).
REFUSALS: list[tuple[str, str]] = [
    ("saved by attention", "it keeps its result for the gradient, torch's fallback its probabilities"),
    ("saved by cross_entropy", "it keeps its input for the gradient, torch its log_softmax"),
    ("more than one element of the written-to tensor", "torch lets indexed writes to overlapping memory pass with a warning"),
    ("a view made by expand cannot be written inside a graph", "documented"),
]


class Switches:
    """enabled: names of EXCLUDED that are drawn all the same; "all" for every one."""

    def __init__(self, enabled=()):
        self._off = [e for e in EXCLUDED if e.name not in enabled and "all" not in enabled]
        self._patterns = [re.compile(e.pattern) for e in self._off if e.pattern]

    def excludes(self, code):
        return any(pattern.search(code) for pattern in self._patterns)

    def allows(self, name):
        return all(e.name != name for e in self._off)


def refusal_is_known(message):
    return next((why for pattern, why in REFUSALS if re.search(pattern, message)), None)
