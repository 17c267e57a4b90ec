"""Parameter groups by name."""

from __future__ import annotations

import re
from typing import Any


def weight_decay_groups(named_parameters: Any, weight_decay: float, *, include: Any = None, exclude: Any = None) -> list[Any]:
    """Groups for an optimizer: of parameters that decay, and of those that do not, as far as there are any.

    include, exclude: lists of regular expressions, one of them given; parameters decay whose name has a match of one of
    `include`, or of none of `exclude`. Parameters that need no gradient are left out.
    """
    if (include is None) == (exclude is None):
        raise ValueError("weight_decay_groups: give either include or exclude")
    patterns = [re.compile(pattern) for pattern in (exclude if include is None else include)]
    groups: list[list[Any]] = [[], []]
    for name, p in named_parameters:
        if p.requires_grad:
            groups[any(pattern.search(name) for pattern in patterns) == (include is None)].append((name, p))
    return [{"params": params, "weight_decay": decay} for params, decay in zip(groups, (weight_decay, 0.0)) if params]
