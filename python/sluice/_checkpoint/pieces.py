"""Which pieces a tensor consists of, and which ranks have them."""

from __future__ import annotations

import dataclasses
import math
from typing import Iterable

from sluice import _C, sbp as _sbp
from sluice._C import Tensor
from sluice._checkpoint import ranks
from sluice._tensor.components import sizes_of
from sluice._tensor.global_tensors import _job
from sluice.errors import NotImplementedError  # noqa: A004

Spans = tuple[tuple[int, int], ...]  # (start, end) of each dim


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a tensor, and the ranks that have it, of which each may write it."""

    spans: Spans
    holders: tuple[int, ...]

    @property
    def shape(self) -> list[int]:
        return sizes_of(self.spans)


def whole(shape: Iterable[int]) -> Spans:
    return tuple((0, n) for n in shape)


def in_parts(t: Tensor) -> bool:
    """Whether this process has a component of the tensor. One process that drives all devices has the whole."""
    return bool(t._global) and _job() is not None


def mine(t: Tensor) -> Tensor:
    """The part that this process has of it: the same memory."""
    return t.detach().to_local() if t._global else t.detach()


def _spans_of_ranks(t: Tensor, name: str) -> list[tuple[int, Spans]]:
    if _sbp.partial_sum in t.sbp:
        raise NotImplementedError(f"checkpoint: '{name}' lies as a partial sum; bring it together first (to_global)")
    found = _C.layout_spans(list(t._shape), t.placement._mesh, _sbp.text(t.sbp, len(t._shape)))
    return [(rank, tuple((a, b) for a, b in spans)) for rank, spans in zip(t.placement._flat, found)]


def pieces_of(t: Tensor, name: str) -> list[Piece]:
    """A local tensor is one piece, which every rank has."""
    if not in_parts(t):
        return [Piece(whole(t._shape), tuple(range(ranks.count())))]
    found: dict[Spans, list[int]] = {}
    for rank, spans in _spans_of_ranks(t, name):
        found.setdefault(spans, []).append(rank)
    return [Piece(spans, tuple(holders)) for spans, holders in found.items()]


def span_of(t: Tensor, name: str, rank: int) -> Spans | None:
    """The part that a rank has; None where it has nothing."""
    return dict(_spans_of_ranks(t, name)).get(rank) if in_parts(t) else whole(t._shape)


def shared_out(pieces: dict[str, list[Piece]], itemsize: dict[str, int]) -> dict[str, list[int]]:
    """By name, the rank that writes each piece: of those that have it, the one with the fewest bytes so far."""
    load = [0] * ranks.count()
    writers: dict[str, list[int]] = {}
    for name in sorted(pieces):
        for piece in pieces[name]:
            rank = min(piece.holders, key=lambda r: (load[r], r))
            load[rank] += math.prod(piece.shape) * itemsize[name]
            writers.setdefault(name, []).append(rank)
    return writers
