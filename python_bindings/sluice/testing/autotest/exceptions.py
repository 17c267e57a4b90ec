"""Names that are not generated, and differences from torch that are meant, each with its reason."""

from __future__ import annotations

import re
from typing import NamedTuple

STATE = "a switch of the process: tests/python/test_dtypes.py, test_precision.py and test_amp.py"
FILES = "files and memory of others: tests/python/test_serialization.py, test_exchange.py and test_tensor.py"
ASKED = "says what a tensor is: tests/python/test_tensor_state.py and test_attributes.py"
BASES = "a base class or a container, which computes nothing: tests/python/test_modules.py and test_module_api.py"

# (regular expression of whole names, as "Tensor.item", why no case is generated)
NOT_GENERATED: list[tuple[str, str]] = []


class Difference(NamedTuple):
    """What may differ: regular expressions of the op, of how it was called and of the difference, and why."""

    op: str
    how: str
    text: str
    why: str


DIFFERENCES: list[Difference] = []


def not_generated(name: str) -> str | None:
    return next((why for pattern, why in NOT_GENERATED if re.fullmatch(pattern, name)), None)


def known(op: str, how: str, text: str) -> Difference | None:
    """The entry that allows this difference."""
    return next((d for d in DIFFERENCES if re.fullmatch(d.op, op) and re.search(d.how, how) and re.search(d.text, text)), None)
