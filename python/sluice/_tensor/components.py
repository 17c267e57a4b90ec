"""What each rank of a job has of an eager global tensor: made of local tensors, and brought from lying one way to another.

The ranks send one another the pieces that they lack, and nothing else: all go through one list of them in one order.
"""

from __future__ import annotations

from typing import Any, Iterator

from sluice import _C, sbp as _sbp
from sluice._C import Tensor
from sluice._tensor.creation import zeros

Spans = Any  # [(start, end), ...] of each dim


def lay(job: Any, component: Tensor, placement: Any, text: str, shape: Any) -> Tensor:
    """The logical tensor of `shape` of which each rank of the placement gives its component."""
    if job.rank not in placement._flat:
        component = zeros(0, dtype=component.dtype)
    elif all(one == _sbp.broadcast for one in _sbp.parse(text)):
        return component._to_global(placement._mesh, text)
    return component.contiguous()._to_global(placement._mesh, text, shape)


class _Layout:
    """How a tensor of `shape` lies on a mesh: by device, in the order of the mesh."""

    def __init__(self, placement: Any, text: str, shape: Any) -> None:
        self.placement, self.text, self.sbp = placement, text, _sbp.parse(text)
        self.ranks, self.grid = placement._flat, placement.shape
        self.spans = _C.layout_spans(list(shape), placement._mesh, text)

    def at(self, i: int) -> tuple[int, ...]:
        """The coordinates of device `i`."""
        found = []
        for n in reversed(self.grid):
            found.insert(0, i % n)
            i //= n
        return tuple(found)

    def index(self, at: Any) -> int:
        i = 0
        for n, coordinate in zip(self.grid, at):
            i = i * n + coordinate
        return i

    def line(self, i: int, axis: int) -> list[int]:
        """The devices along `axis` through device `i`."""
        at = list(self.at(i))
        return [self.index([*at[:axis], c, *at[axis + 1:]]) for c in range(self.grid[axis])]


def common(a: Spans, b: Spans) -> Spans | None:
    """What lies in both; None where nothing does."""
    both = [(max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b)]
    return both if all(start < end for start, end in both) else None


def sizes_of(spans: Spans) -> list[int]:
    return [end - start for start, end in spans]


def cut(whole: Tensor, spans: Spans, within: Spans) -> Tensor:
    """What of `within`, which `whole` is, lies in `spans`: a view."""
    for dim, ((start, end), (first, last)) in enumerate(zip(spans, within)):
        if (start, end) != (first, last):
            whole = whole.narrow(dim, start - first, end - start)
    return whole


def _travel(job: Any, piece: Any, target: Any, source: int, to: int, sizes: list[int], dtype: Any) -> None:
    """piece(), which rank `source` has, comes to rank `to`, where target(piece) takes it."""
    if job.rank == source == to:
        target(piece())
    elif job.rank == source:
        job.send(piece().contiguous(), to)
    elif job.rank == to:
        got = zeros(sizes, dtype=dtype)
        job.receive(got, source)
        target(got)


def _sources(old: _Layout, new: _Layout, t: int) -> Iterator[tuple[int, Spans]]:
    """The devices of `old` of whose parts that of device `t` of `new` is made, and the pieces: side by side, or addends."""
    wanted = new.spans[t]
    axis = _changed(old, new)
    if axis is not None:
        if new.sbp[axis] == _sbp.partial_sum and new.at(t)[axis] > 0:
            return
        near = [t] if old.sbp[axis] == _sbp.broadcast else old.line(t, axis)
        for s in near:
            piece = common(old.spans[s], wanted)
            if piece is not None:
                yield s, piece
        return
    if _sbp.partial_sum in old.sbp:  # all of it are addends, and stay so
        yield t, wanted
        return
    done = []
    for s in sorted(range(len(old.ranks)), key=lambda s: (old.ranks[s] != new.ranks[t], (s - t) % len(old.ranks))):
        piece = common(old.spans[s], wanted)
        if piece is not None and piece not in done:
            done.append(piece)
            yield s, piece


def _changed(old: _Layout, new: _Layout) -> int | None:
    """The one axis of the mesh along which lying changes; None between meshes."""
    if old.placement != new.placement:
        return None
    return next(axis for axis, (a, b) in enumerate(zip(old.sbp, new.sbp)) if a != b and old.grid[axis] > 1)


def _step(job: Any, component: Tensor, dtype: Any, old: _Layout, new: _Layout) -> Tensor:
    """This rank's component after one step of a path."""
    axis = _changed(old, new)
    adds = axis is not None and old.sbp[axis] == _sbp.partial_sum
    mine = new.ranks.index(job.rank) if job.rank in new.ranks else None
    made = None if mine is None else zeros(sizes_of(new.spans[mine]), dtype=dtype)
    for t, to in enumerate(new.ranks):
        for number, (s, piece) in enumerate(_sources(old, new, t)):
            def take(got: Tensor, t: int = t, piece: Spans = piece, number: int = number) -> None:
                place = cut(made, piece, new.spans[t])
                place.copy_(place + got if adds and number else got)

            _travel(job, lambda s=s, piece=piece: cut(component, piece, old.spans[s]), take, old.ranks[s], to, sizes_of(piece), dtype)
    return zeros(0, dtype=dtype) if made is None else made


def convert(job: Any, x: Tensor, placement: Any, text: str) -> Tensor:
    """A global tensor, lying another way: by the steps that move the fewest bytes."""
    if x.placement == placement and x._global[1] == text:
        return x
    shape, known, dtype = x._shape, x.detach().to_local(), x.dtype
    component = known
    old = _Layout(x.placement, x._global[1], shape)
    for mesh, sbp, _ in _C.boxing_path(list(shape), (old.placement._mesh, old.text), (placement._mesh, text)):
        new = _Layout(placement if mesh == placement._mesh else x.placement, sbp, shape)
        component = _step(job, component, dtype, old, new)
        old = new
    return lay(job, component.clone() if component is known else component, placement, text, shape)


def _whole_of(placement: Any, sbp: Any, sizes: Any) -> list[int]:
    """The shape of which the devices have parts of `sizes`."""
    grid = _Layout(placement, ",".join("B" for _ in sbp), ())
    whole = list(sizes[0])
    for dim in range(len(whole)):
        cuts = [axis for axis, one in enumerate(sbp) if one.kind == "split" and one.dim == dim]
        first = [i for i in range(len(grid.ranks)) if all(c == 0 for axis, c in enumerate(grid.at(i)) if axis not in cuts)]
        whole[dim] = sum(sizes[i][dim] for i in first if len(sizes[i]) == len(whole))
    return whole


def combine(job: Any, local: Tensor, placement: Any, text: str) -> Tensor:
    """The logical tensor of the ranks' local ones."""
    if not local.is_leaf:
        raise NotImplementedError("to_global: the tensor is the result of ops that record gradients; call to_global on a "
                                  "leaf, or inside nn.Graph")
    local, sbp = local.detach(), _sbp.parse(text)
    types = [text.split() for text in job.all_gather_text(" ".join([local.dtype.name, *map(str, local._shape)]))]
    sizes = [[int(size) for size in types[rank][1:]] for rank in placement._flat]
    dtype, shape = types[placement._flat[0]][0], _whole_of(placement, sbp, sizes)
    laid = _Layout(placement, text, shape)
    # Along an axis of broadcast the first has what all get.
    first = [laid.index([0 if one == _sbp.broadcast else c for one, c in zip(sbp, laid.at(i))]) for i in range(len(laid.ranks))]
    for i, rank in enumerate(laid.ranks):
        part = sizes_of(laid.spans[i])
        if types[rank] != [dtype, *map(str, part)]:
            raise _C.ValueError(f"to_global: rank {rank} has {types[rank][0]} ({', '.join(types[rank][1:])}); it must be "
                                f"{dtype} ({', '.join(map(str, part))}), for {sbp[0] if len(sbp) == 1 else sbp!r} of {tuple(shape)} "
                                f"over ranks {list(placement._flat)}")
    if all(i == 0 for i in first):
        local = local.clone() if job.rank in laid.ranks else zeros(shape, dtype=getattr(_C, dtype))
        job.broadcast(local, laid.ranks[0])
        return lay(job, local, placement, text, shape)
    given, kept = local, [local]
    for i, rank in enumerate(laid.ranks):
        if first[i] != i:
            _travel(job, lambda: given, lambda got: kept.append(got), laid.ranks[first[i]], rank, sizes_of(laid.spans[i]), local.dtype)
    return lay(job, kept[-1], placement, text, shape)
