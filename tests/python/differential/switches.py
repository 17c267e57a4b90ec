"""What programs leave out, and what may be refused, each with its reason. Empty tables are the aim."""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Excluded:
    """Statements that are not drawn, because of a known defect.

    pattern: a regular expression of the statement; where it is "", only `Switches.allows(name)` asks.
    rank, lasting, strided: only where the operand has that rank; where it lies in the memory of a parameter or buffer; in
        that of an argument whose axes are not in order, in a program that can be a graph.
    """

    name: str
    pattern: str
    reason: str
    rank: int | None = None
    lasting: bool = False
    strided: bool = False


EXCLUDED = [
    Excluded("stack_rank_0", r"[hv]stack", "hstack and vstack refuse 0-d tensors", rank=0),
    Excluded("hardsigmoid", r"hardsigmoid|hardswish", "torch computes the gradient with a sixth in float32, also of float64"),
    Excluded("data", r"\.data\b", "torch does not see writes through .data; here the gradient that needs the old values is refused"),
    Excluded("order_of_axes", r"view|reshape|flatten|contiguous", "a graph's arguments have their axes in order: where torch copies, it views",
             strided=True),
    Excluded("unread_arguments", "", "with micro-batches, a graph in which nothing depends on an argument is not cut"),
    Excluded("written_parameter", "", "with micro-batches, a parameter written in build() is a rate error where the optimizer reads it"),
]

# (regular expression of the message, why torch runs it and Sluice need not).
REFUSALS: list[tuple[str, str]] = [
    ("saved by (reciprocal|sin|cos|cross_entropy)", "x ** -1, tan and cross_entropy keep other values than torch for the gradient"),
    ("more than one element of the written-to tensor", "torch lets indexed writes to overlapping memory pass with a warning"),
    ("a view made by expand cannot be written inside a graph", "documented"),
    ("in-place write inside graph .* to a tensor that is not part of it", "a known defect: a gradient, or a constant, that is written to"),
]


class Switches:
    """enabled: names of EXCLUDED that are drawn all the same; "all" for every one."""

    def __init__(self, enabled=()):
        self._off = [e for e in EXCLUDED if e.name not in enabled and "all" not in enabled]
        self._patterns = [(re.compile(e.pattern), e) for e in self._off if e.pattern]

    def excludes(self, code, rank, lasting, strided):
        return any(e.rank in (None, rank) and (lasting or not e.lasting) and (strided or not e.strided) and p.search(code)
                   for p, e in self._patterns)

    def allows(self, name):
        return all(e.name != name for e in self._off)


def refusal_is_known(message):
    return next((why for pattern, why in REFUSALS if re.search(pattern, message)), None)
