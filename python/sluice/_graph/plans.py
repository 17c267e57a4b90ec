"""The common part of the plans of one graph."""

from __future__ import annotations

from typing import Any

from sluice import _C


class Blocks:
    """Memory that plans of one graph share for their arenas; one of them at a time has steps in flight. A plan that needs more
    than is there gets a new block, and the old one goes with the plans that have it."""

    def __init__(self, arenas: Any = None) -> None:
        self.arenas = arenas or _C.SharedArenas()

    def loaded(self, call: Any) -> None:
        """REQUIRES: its plan is the last that was loaded."""
        call.blocks = {space: self.arenas.bytes(space) for space in call.session.ledger()["spaces"]}

    def held(self, calls: list[Any]) -> dict[str, int]:
        """By space, the bytes of the blocks of `calls`, which are all that there are. Blocks differ in their sizes."""
        blocks = {(space, size) for call in calls for space, size in call.blocks.items()}
        blocks |= {(space, self.arenas.bytes(space)) for space, _ in blocks}
        return {space: sum(size for s, size in blocks if s == space) for space, _ in blocks}


class Plans:
    """The common part of families and caches: several calls, one of which was used last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._last: Any = None

    @property
    def session(self) -> Any:
        """The session of the plan that was used last."""
        return self._last.session

    @property
    def donated(self) -> frozenset[str]:
        """Inputs whose memory calls take."""
        return self._last.donated

    def calls(self) -> list[Any]:
        """The calls of all plans that there are now."""
        raise NotImplementedError(f"{type(self).__name__}: calls() must be defined")

    def functions(self) -> dict[str, Any]:
        """The functions of their host streams, by name."""
        return {name: function for call in self.calls() for name, function in call.functions().items()}

    def sessions(self) -> list[Any]:
        return [call.session for call in self.calls()]

    def synchronize(self) -> None:
        for session in self.sessions():
            session.synchronize()

    def reset(self) -> None:
        for call in self.calls():
            call.reset()
