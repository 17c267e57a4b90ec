"""The output that debug() of a graph or a module asks for."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice._base.job import state as job


class Debug:
    """Says what is printed: stages at level 0, modules at 1, ops at 2, their attributes and Python stacks at 3."""

    def __init__(self, level: int = -1, stack_depth: int = 2, ranks: Any = None) -> None:
        if not isinstance(level, Integral) or not -1 <= level <= 3:
            raise ValueError(f"debug: v_level is {level!r}; must be -1 (off) to 3")
        ranks = 0 if ranks is None else ranks
        listed = ranks if isinstance(ranks, (list, tuple)) else [ranks]
        if not all(isinstance(r, Integral) and (r >= 0 or ranks == -1) for r in listed):
            raise ValueError(f"debug: ranks is {ranks!r}; must be a rank, a list of ranks, or -1 for all")
        self.level, self.stack_depth, self.everywhere, self.ranks = level, stack_depth, ranks == -1, listed

    def level_here(self) -> int:
        return self.level if self.everywhere or job.rank in self.ranks else -1
