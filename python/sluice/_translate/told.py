"""What to_static() tells on stderr, as much as users ask for."""

from __future__ import annotations

import sys

_verbosity = 0
_code = False


def set_verbosity(level: int = 0) -> None:
    """What `to_static` tells on stderr: 0 nothing, 1 which functions it translates, 2 also which ones it leaves as they are, and why, 3 also
    their translations. paddle.jit.set_verbosity."""
    global _verbosity
    if level not in range(4):
        raise ValueError(f"set_verbosity: {level!r}; must be 0 to 3")
    _verbosity = level


def set_code_level(level: int = 1) -> None:
    """Whether translations are shown on stderr when they are made: 0, not; else they are. paddle.jit.set_code_level."""
    global _code
    _code = level > 0


def told(level: int, text: str) -> None:
    if _verbosity >= level:
        print(f"to_static: {text}", file=sys.stderr)


def show(name: str, source: str) -> None:
    if _code or _verbosity >= 3:
        print(f"to_static: {name} is now\n{source}", file=sys.stderr)
