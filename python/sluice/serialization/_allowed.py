"""What a checkpoint may call."""

from __future__ import annotations

from typing import Any, Callable


class Allowed:
    """A function that a checkpoint may call. Unlike a function it has no attribute that a checkpoint could set."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)
