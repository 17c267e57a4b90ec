"""A folder of checkpoints by step."""

from __future__ import annotations

import os
import re
from typing import Any

from sluice._base.job import state as job
from sluice._checkpoint import files, ranks
from sluice._checkpoint.reading import load
from sluice._checkpoint.writing import Saving
from sluice.errors import ValueError  # noqa: A004

_STEP = re.compile(r"step-(\d{8,})")


class Checkpoints:
    """Checkpoints of one training in `folder`, of which the newest `keep` stay; None: all.

        checkpoints = Checkpoints("out/run", keep=3)
        step = checkpoints.load(state) or 0      # goes on where there is one
        checkpoints.save(step, state)            # returns at once; a thread writes
        checkpoints.wait()

    All ranks make the same calls. One job at a time uses a folder.
    """

    def __init__(self, folder: Any, keep: int | None = None) -> None:
        if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 1):
            raise ValueError(f"Checkpoints: keep is {keep!r}; must be an int of at least 1, or None for all")
        self.folder, self.keep = os.path.abspath(os.fspath(folder)), keep
        self._saving: Saving | None = None
        ranks.together("Checkpoints", self._begin)

    def _begin(self) -> None:
        if job.rank == 0:
            os.makedirs(self.folder, exist_ok=True)
            files.clean(self.folder)

    def path(self, step: int) -> str:
        """The path of a step's checkpoint, which need not be there."""
        return os.path.join(self.folder, f"step-{step:08d}")

    def steps(self) -> list[int]:
        """The steps that rank 0 sees checkpoints of, from the oldest on."""
        found = []
        if job.rank == 0:
            matches = [_STEP.fullmatch(name) for name in os.listdir(self.folder)]
            found = sorted(int(match[1]) for match in matches if match and os.path.exists(os.path.join(self.folder, match[0], files.INDEX)))
        return [int(step) for step in ranks.of_the_first(" ".join(map(str, found))).split()]

    def latest(self) -> int | None:
        """The newest step of which there is a checkpoint."""
        return max(self.steps(), default=None)

    def save(self, step: int, state: dict[str, Any]) -> Saving:
        """Begins to write the checkpoint of a step, as async_save(). One at a time: it waits for the one before."""
        self.wait()
        self._saving = Saving(state, self.path(step))
        return self._saving

    def wait(self) -> None:
        """Returns when the latest is there, and old ones are gone; raises on every rank what went wrong on one."""
        saving, self._saving = self._saving, None
        if saving is None:
            return
        saving.wait()
        old = self.steps()[:-self.keep] if self.keep is not None else []
        ranks.together("Checkpoints", lambda: [files.remove(self.path(step)) for step in old if job.rank == 0])

    def load(self, state: dict[str, Any], step: int | None = None) -> int | None:
        """Loads the newest checkpoint, or that of a step, and gives its step; None where there is none."""
        self.wait()
        step = self.latest() if step is None else step
        if step is not None:
            load(state, self.path(step))
        return step
