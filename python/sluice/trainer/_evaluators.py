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
    """"mse", "rmse", "mae" and "r2" of all elements, and "pearson", their correlation."""

    def sums(self, outputs: Any, targets: Tensor, mask: Tensor) -> list[Tensor]:
        if outputs._shape != targets._shape:
            raise ValueError(f"Regression: outputs are {tuple(outputs._shape)}, targets {tuple(targets._shape)}; must be the same")
        x, y, error = outputs.to(_C.float64), targets.to(_C.float64), (outputs - targets).to(_C.float64)
        w = _weights(mask, y).to(_C.float64)
        return [(part * w).sum() for part in (error * error, error.abs(), y, y * y, x, x * x, x * y)] + [w.sum()]

    def metrics(self, totals: list[float]) -> dict[str, float]:
        squares, errors, y, yy, x, xx, xy, count = totals
        spread, other, both = yy - y * y / count, xx - x * x / count, xy - x * y / count
        return {"mse": squares / count, "rmse": math.sqrt(squares / count), "mae": errors / count,
                "r2": 1 - squares / spread if spread > 0 else float("nan"),
                "pearson": both / math.sqrt(spread * other) if spread > 0 and other > 0 else float("nan")}


class Bleu(Evaluator):
    """"bleu": corpus BLEU, from 0 to 100, of sequences of token ids (Papineni et al. 2002), as sacrebleu defines it: n-grams of up to `n`
    tokens, and of several references the length that is closest, or the shorter one of two such. Besides "precision1" and so on, in
    percent, and "brevity".

    Outputs are ids (rows, tokens), or logits (rows, tokens, classes), of which the largest is taken. Targets are ids (rows, tokens), or
    (rows, references, tokens). A sequence ends ahead of its first id that is `end`, or below 0. smooth: with "exp" the first n without a
    match counts as half of one, the next as a quarter, and so on; with "none" the score is then 0.
    """

    def __init__(self, end: int | None = None, n: int = 4, smooth: str = "exp") -> None:
        if n < 1:
            raise ValueError(f"Bleu: n is {n}; must be at least 1")
        if smooth not in ("exp", "none"):
            raise ValueError(f"Bleu: smooth is {smooth!r}; must be 'exp' or 'none'")
        self.end, self.n, self.smooth = end, n, smooth

    def sums(self, outputs: Any, targets: Tensor, mask: Tensor) -> list[Tensor]:
        ids = outputs.argmax(-1) if outputs.ndim == 3 else outputs
        if ids.ndim != 2 or targets.ndim not in (2, 3) or ids.dtype.is_floating_point or targets.dtype.is_floating_point:
            raise ValueError(f"Bleu: outputs are {outputs.dtype.name} {tuple(outputs._shape)}, targets {targets.dtype.name} "
                             f"{tuple(targets._shape)}; must be ids (rows, tokens) or logits (rows, tokens, classes), and ids (rows, tokens) "
                             "or (rows, references, tokens)")
        references = targets if targets.ndim == 3 else targets.unsqueeze(1)
        begins, others = self._within(ids), self._within(references)
        length, lengths = begins.long().sum(1), others.long().sum(2)
        off = (lengths - length.unsqueeze(1)).abs() * (references._shape[2] + 1) + lengths  # how far, then how long
        closest = fn.gather(lengths, 1, off.argmin(1, keepdim=True)).squeeze(1)
        # True where the n-grams that begin at i and at j are equal: (rows, i, j), and with references (rows, references, i, j).
        own = same = ids.unsqueeze(2) == ids.unsqueeze(1)
        other = alike = ids.reshape(-1, 1, ids._shape[1], 1) == references.unsqueeze(2)
        found: list[Tensor] = []
        for k in range(self.n):
            if k >= min(ids._shape[1], references._shape[2]):
                found.append(length * 0)
                continue
            if k:
                own, other = (x[..., :-1, :-1] & y[..., k:, k:] for x, y in ((own, same), (other, alike)))
                begins, others = begins[..., 1:], others[..., 1:]
            ahead = fn.tril(own.long(), -1).sum(2)  # equal ones, which have taken as many of a reference
            most = (other & others.unsqueeze(2)).long().sum(3).amax(1)
            found.append((begins & (ahead < most)).long().sum(1))
        counts = [(length - k).clamp(min=0) for k in range(self.n)]
        return [(x.to(_C.float64) * mask.to(_C.float64)).sum() for x in (*found, *counts, length, closest)]

    def _within(self, ids: Tensor) -> Tensor:
        ends = ids < 0 if self.end is None else (ids < 0) | (ids == self.end)
        return ends.long().cumsum(-1) == 0

    def metrics(self, totals: list[float]) -> dict[str, float]:
        found, counts, (length, closest) = totals[:self.n], totals[self.n:2 * self.n], totals[2 * self.n:]
        precisions, halves = [], 1.0
        for matches, count in zip(found, counts):
            if not matches:
                halves *= 2 if self.smooth == "exp" else math.inf
            precisions.append((matches or 1 / halves) / count if count else 0.0)
        brevity = 1.0 if length >= closest else math.exp(1 - closest / length) if length else 0.0
        score = 0.0
        if any(found) and all(precisions):
            score = brevity * math.exp(sum(map(math.log, precisions)) / self.n)
        return {"bleu": 100 * score, **{f"precision{k}": 100 * p for k, p in enumerate(precisions, 1)}, "brevity": brevity}
