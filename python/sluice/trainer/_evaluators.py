"""Evaluators: sums over all rows, of which metrics are made. Sums of parts add up, so batches and parts may be of any sizes."""

from __future__ import annotations

import math
from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice.errors import ValueError  # noqa: A004
from sluice.nn import functional as F


class Evaluator:
    """`sums` computes scalars of a batch, in a graph: `mask` is 1 for rows that count and 0 for those that fill up the last batch.
    `metrics` makes numbers by name of their totals."""

    def sums(self, outputs: Any, targets: Tensor, mask: Tensor) -> list[Tensor]:
        raise NotImplementedError(f"{type(self).__name__}.sums: is not written; must give scalars of a batch")

    def metrics(self, totals: list[float]) -> dict[str, float]:
        raise NotImplementedError(f"{type(self).__name__}.metrics: is not written; must give numbers by name")


def _weights(mask: Tensor, like: Tensor) -> Tensor:
    """The mask, for each element of `like`, whose first dim is rows."""
    return mask.reshape(-1, *[1] * (like.ndim - 1)).expand(*like._shape)


class TopK(Evaluator):
    """"top1", "top5" and so on: the share of rows whose class is among the k with the largest logits; and "loss", the cross-entropy."""

    def __init__(self, k: Any = (1,)) -> None:
        self.k = sorted({k} if isinstance(k, int) else set(k))
        if not self.k or self.k[0] < 1:
            raise ValueError(f"TopK: k is {k!r}; must be ints of at least 1")

    def sums(self, outputs: Any, targets: Tensor, mask: Tensor) -> list[Tensor]:
        if outputs.ndim != 2 or outputs._shape[1] < self.k[-1]:
            raise ValueError(f"TopK: outputs are {tuple(outputs._shape)}; must be (rows, classes), with at least {self.k[-1]} classes")
        own = fn.gather(outputs, 1, targets.reshape(-1, 1))
        # The class with the smaller number goes first where logits are equal.
        ahead = (outputs > own) | ((outputs == own) & (_numbers(outputs) < targets.reshape(-1, 1)))
        rank = ahead.float().sum(1)
        losses = F.cross_entropy(outputs.float(), targets, reduction="none")
        return [*[((rank < k).float() * mask).sum() for k in self.k], (losses * mask).sum(), mask.sum()]

    def metrics(self, totals: list[float]) -> dict[str, float]:
        *hits, loss, count = totals
        return {**{f"top{k}": n / count for k, n in zip(self.k, hits)}, "loss": loss / count}


def _numbers(outputs: Tensor) -> Tensor:
    from sluice._tensor.creation import arange

    return arange(outputs._shape[1]).reshape(1, -1)


class Perplexity(Evaluator):
    """"perplexity": exp of the mean cross-entropy of all classes, of outputs (..., classes); and "loss", that mean. `ignore_index` does
    not count."""

    def __init__(self, ignore_index: int = -100) -> None:
        self.ignore_index = ignore_index

    def sums(self, outputs: Any, targets: Tensor, mask: Tensor) -> list[Tensor]:
        losses = F.cross_entropy(outputs.reshape(-1, outputs._shape[-1]).float(), targets.reshape(-1), ignore_index=self.ignore_index,
                                 reduction="none").reshape(*targets._shape)
        counts = _weights(mask, targets) * (targets != self.ignore_index).float()
        return [(losses * counts).sum(), counts.sum()]

    def metrics(self, totals: list[float]) -> dict[str, float]:
        mean = totals[0] / totals[1]
        return {"perplexity": math.exp(min(mean, 700.0)), "loss": mean}


class Regression(Evaluator):
    """"mse", "mae" and "r2" of all elements."""

    def sums(self, outputs: Any, targets: Tensor, mask: Tensor) -> list[Tensor]:
        if outputs._shape != targets._shape:
            raise ValueError(f"Regression: outputs are {tuple(outputs._shape)}, targets {tuple(targets._shape)}; must be the same")
        y, error = targets.to(_C.float64), (outputs - targets).to(_C.float64)
        w = _weights(mask, y).to(_C.float64)
        return [(error * error * w).sum(), (error.abs() * w).sum(), (y * w).sum(), (y * y * w).sum(), w.sum()]

    def metrics(self, totals: list[float]) -> dict[str, float]:
        squares, errors, first, second, count = totals
        spread = second - first * first / count
        return {"mse": squares / count, "mae": errors / count, "r2": 1 - squares / spread if spread > 0 else float("nan")}
