"""Ranks of a job agree here. Alone, a process agrees with itself."""

from __future__ import annotations

from typing import Callable, TypeVar

from sluice._base.job import state
from sluice._tensor.global_tensors import _job
from sluice.errors import RuntimeError  # noqa: A004

_T = TypeVar("_T")


def count() -> int:
    return 1 if state.world is None else int(state.world.size)


def gathered(text: str) -> list[str]:
    """Every rank's text, in their order."""
    job = _job()
    return [text] if job is None else list(job.all_gather_text(text))


def of_the_first(text: str) -> str:
    """Rank 0's text."""
    return gathered(text if state.rank == 0 else "")[0]


def together(where: str, call: Callable[[], _T]) -> _T:
    """call() on every rank. Where it fails on one it fails on all: there with its own error, elsewhere with one that names the rank."""
    failure: Exception | None = None
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 it is raised below
        failure = error
    told = gathered("" if failure is None else f"{type(failure).__name__}: {failure}")
    if failure is not None:
        raise failure
    for rank, text in enumerate(told):
        if text:
            raise RuntimeError(f"{where}: rank {rank}: {text}")
    return result
