"""Placements by the sizes of their axes."""

from __future__ import annotations

import math
from numbers import Integral

import numpy as np

from sluice._tensor.global_tensors import _job, placement


def mesh(type: str = "cpu", **sizes: int) -> placement:
    """The first devices of `type` as a block: mesh("sim", dp=2, tp=2) is placement("sim", [[0, 1], [2, 3]], names=("dp", "tp")).

    In a job of several ranks it takes all of them: the sizes must multiply to their number.
    """
    if not sizes or not all(isinstance(n, Integral) and not isinstance(n, bool) and n > 0 for n in sizes.values()):
        raise ValueError(f"mesh: sizes are {sizes}; must be ints above 0 by the names of axes, like dp=2, tp=2")
    job, n = _job(), math.prod(sizes.values())
    if job is not None and n != job.size:
        text = " x ".join(f"{name}={size}" for name, size in sizes.items())
        raise ValueError(f"mesh: {text} is {n} devices; the job has {job.size} ranks, and the sizes must multiply to that")
    return placement(type, np.arange(n).reshape(list(sizes.values())).tolist(), tuple(sizes))


def part(whole: placement, axis: str, i: int) -> placement:
    """The devices whose coordinate along `axis` is `i`, with the axes that remain."""
    at = whole.axis(axis)
    if not 0 <= i < whole.shape[at]:
        raise ValueError(f"part: {i} of axis {axis!r} of {whole}; must be from 0 to {whole.shape[at] - 1}")
    names = [name for k, name in enumerate(whole.names) if k != at]
    ranks = np.asarray(whole.ranks).take(i, axis=at)
    if not names:
        return placement(whole.type, [int(ranks)])
    if any(name is None for name in names):
        return placement(whole.type, ranks.tolist())
    return placement(whole.type, ranks.tolist(), names)


def stages(whole: placement, axis: str = "pp") -> list[placement]:
    """The meshes of the stages of a pipeline: one for each step along `axis`."""
    return [part(whole, axis, i) for i in range(whole.size(axis))]
