"""Calls of different sizes."""

from __future__ import annotations

from typing import Any


class Exact:
    """Arguments as they are."""

    is_new_size = False

    def __init__(self, arguments: Any) -> None:
        self._arguments = arguments
        self.tensors, self.key, self.objects = arguments.tensors, arguments.key, arguments.objects
        self.build = arguments.build

    def cut(self, result: Any) -> Any:
        return result


class Sizes:
    def __init__(self, settings: Any) -> None:
        self._settings = settings

    def seen(self, arguments: Any) -> None:
        pass

    def fitted(self, arguments: Any) -> Any:
        return Exact(arguments)

    def groups(self, programs: Any) -> int:
        return sum(map(len, programs.values()))
