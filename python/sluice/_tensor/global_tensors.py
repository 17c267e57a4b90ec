"""Global tensors: one logical tensor over several devices, for nn.Graph to split.

In a job of several ranks each has its component of an eager one; what needs others' is collective: to_global().
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C, sbp as _sbp
from sluice._C import Tensor
from sluice._tensor.creation import lay_alike_by, zeros, zeros_like
from sluice._tensor.methods import method


def _job() -> Any:
    """The world of several ranks that this process is in, with nothing under way; or None."""
    from sluice._base.job import state

    state.settle()
    return state.world if state.world is not None and state.world.size > 1 else None


class placement:
    """A row of devices: placement("sim", [0, 1]), placement(type="cpu", ranks=[0]).

    Numbers are the job's devices: of one process its own; of several ranks each drives the one of its number.
    """

    __slots__ = ("type", "ranks", "_mesh")

    def __init__(self, type: str, ranks: Any) -> None:
        ranks = list(ranks)
        if not ranks or not all(isinstance(r, Integral) and not isinstance(r, bool) and r >= 0 for r in ranks):
            raise _C.ValueError(f"placement: ranks are {ranks!r}; must be a list of device numbers, like [0, 1]")
        ranks = [int(r) for r in ranks]
        job = _job()
        if job is None:
            names = [f"{type}:{r}" for r in ranks]
        elif max(ranks) < job.size:
            names = [f"{r}/{type}:{job.local_ranks[r] if type == 'cuda' else 0}" for r in ranks]
        else:
            raise _C.ValueError(f"placement: rank {max(ranks)}; the job has ranks 0 to {job.size - 1}")
        self._mesh = _C.parse_mesh(",".join(names))
        self.type, self.ranks = type, tuple(ranks)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, placement) and self._mesh == other._mesh

    def __hash__(self) -> int:
        return hash(self._mesh)

    def __repr__(self) -> str:
        return f"sluice.placement(type='{self.type}', ranks={list(self.ranks)})"

    def __str__(self) -> str:
        return self._mesh


def _lies(t: Any, what: str) -> Any:
    """(placement, sbp) of a tensor that says so; None of a local one."""
    if not t._traced:
        return t._global and (_placement_of(t._global[0]), _sbp.parse(t._global[1]))
    known = getattr(t, "_laid", None)
    if known is None:
        raise RuntimeError(f"{what}: the placement of a traced tensor is decided when the graph is compiled; choose it with "
                           "to_global(...)")
    return known


def _placement_of(mesh: str) -> placement:
    devices = [(int(rank or 0), *name.split(":")) for rank, _, name in (d.rpartition("/") for d in _C.mesh_devices(mesh))]
    several = any(rank for rank, _, _ in devices)
    made = placement.__new__(placement)
    made._mesh, made.type = mesh, devices[0][1]
    made.ranks = tuple(rank if several else int(index) for rank, _, index in devices)
    return made


@method
def to_global(self, placement=None, sbp=None) -> Tensor:
    """The same logical tensor, over the devices of `placement` as `sbp` says; what is left out stays as it is.

    Eager tensors remember how graphs are to lay them; inside nn.Graph the compiler moves them. The memory of an eager one
    holds the whole; in a job of several ranks, what this rank has of it. There all ranks must make the call: a local
    tensor becomes this rank's component (the part of split, an addend of partial_sum; broadcast gives all ranks what the
    placement's first one has), and a global one is brought from lying one way to lying another.
    """
    if placement is None or sbp is None:
        now = _lies(self, "to_global")
        if not now:
            raise _C.ValueError("to_global: a local tensor needs both placement= and sbp=")
        placement, sbp = placement or now[0], sbp or now[1]
    if not isinstance(placement, _Placement):
        raise TypeError(f"to_global: placement is {placement!r}; must be a sluice.placement")
    text = _sbp.one(sbp).text(self.ndim)
    if _C.touches_graph(self):
        lies = _sbp.parse(text)
        result = _C.ops.to_global(self, mesh=_C.mesh_devices(placement._mesh), sbp=lies.kind, axis=lies.dim or 0)
        result._laid = (placement, lies)
        return result
    job = _job()  # a constant, inside nn.Graph, too
    if job is None:
        return self._to_global(placement._mesh, text)
    return (_convert if self._global else _combine)(job, self, placement, _sbp.parse(text)).requires_grad_(self.requires_grad)


_Placement = placement


def _lay(job: Any, component: Tensor, placement: Any, sbp: Any, shape: Any) -> Tensor:
    """The logical tensor of `shape` of which each rank of the placement gives its component."""
    text = sbp.text(len(shape))
    if job.rank not in placement.ranks:
        component = zeros(0, dtype=component.dtype)
    elif sbp == _sbp.broadcast:
        return component._to_global(placement._mesh, text)
    return component.contiguous()._to_global(placement._mesh, text, shape)


def lie_like(local: Tensor, like: Tensor) -> Tensor:
    """A tensor of the shape of what this process has of the global tensor `like`, lying as that does. With partial_sum, the
    first rank's is the value and the others' are 0."""
    job = _job()
    if job is None:
        return local._to_global(*like._global)
    sbp = like.sbp[0]
    if sbp == _sbp.partial_sum:
        return _lay(job, local, like.placement, _sbp.broadcast, like._shape).to_global(sbp=sbp)
    return _lay(job, local, like.placement, sbp, like._shape)


def _span(size: int, n: int, i: int) -> tuple[int, int]:
    """Start and length of part i of `size` elements in n: the first ones have one more where it does not divide evenly."""
    return size // n * i + min(i, size % n), size // n + (i < size % n)


def place(x: Tensor, placement: Any, sbp: Any) -> Tensor:
    """to_global() of what all ranks have whole."""
    return (x if x._global else x.to_global(placement, _sbp.broadcast)).to_global(placement, sbp)


def fill(target: Tensor, source: Tensor) -> None:
    """target.copy_(source); in a job of several ranks the target may be global, and the source, of which all have it whole."""
    if target._global and _job():
        source, target = place(source, target.placement, target.sbp).to_local(), target.detach().to_local()
    target.copy_(source)


def _combine(job: Any, local: Tensor, placement: Any, sbp: Any) -> Tensor:
    """The logical tensor of the ranks' local ones."""
    if not local.is_leaf:
        raise NotImplementedError("to_global: the tensor is the result of ops that record gradients; call to_global on a "
                                  "leaf, or inside nn.Graph")
    local = local.detach()
    types = [text.split() for text in job.all_gather_text(" ".join([local.dtype.name, *map(str, local._shape)]))]
    first, n = placement.ranks[0], len(placement.ranks)
    dtype, shape = types[first][0], [int(size) for size in types[first][1:]]
    parts = [shape] * n
    if sbp.kind == "split":
        if len(shape) > sbp.dim:
            shape = [*shape]
            shape[sbp.dim] = sum(int(types[r][1 + sbp.dim]) for r in placement.ranks if len(types[r]) == len(types[first]))
        parts = [[_span(size, n, i)[1] if d == sbp.dim else size for d, size in enumerate(shape)] for i in range(n)]
    for rank, part in zip(placement.ranks, parts):
        if types[rank] != [dtype, *map(str, part)]:
            raise _C.ValueError(f"to_global: rank {rank} has {types[rank][0]} ({', '.join(types[rank][1:])}); it must be "
                                f"{dtype} ({', '.join(map(str, part))}), for {sbp!r} of {tuple(shape)} over ranks {list(placement.ranks)}")
    if sbp == _sbp.broadcast:
        local = local.clone() if job.rank in placement.ranks else zeros(shape, dtype=getattr(_C, dtype))
        job.broadcast(local, first)
    return _lay(job, local, placement, sbp, shape)


def _convert(job: Any, x: Tensor, placement: Any, sbp: Any) -> Tensor:
    """A global tensor, lying another way."""
    (old,), shape, component = x.sbp, x._shape, x.to_local()
    if x.placement == placement and old == sbp:
        return x
    # The part that this rank needs is cut out of the whole.
    if old == _sbp.broadcast and set(placement.ranks) <= set(x.placement.ranks):
        whole = component
    elif old == _sbp.partial_sum:
        whole = component.clone() if job.rank in x.placement.ranks else zeros(shape, dtype=x.dtype)
        job.all_reduce(whole, "sum")
    else:
        owners = x.placement.ranks if old.kind == "split" else x.placement.ranks[:1]
        whole = zeros(shape, dtype=x.dtype)
        for i, rank in enumerate(owners):
            place = whole.narrow(old.dim, *_span(shape[old.dim], len(owners), i)) if old.kind == "split" else whole
            piece = (component if rank == job.rank else place).clone()
            job.broadcast(piece, rank)
            place.copy_(piece)
    if job.rank in placement.ranks:
        i = placement.ranks.index(job.rank)
        if sbp.kind == "split":
            whole = whole.narrow(sbp.dim, *_span(shape[sbp.dim], len(placement.ranks), i)).clone()
        elif sbp == _sbp.partial_sum and i > 0:
            whole = zeros_like(whole)
    return _lay(job, whole, placement, sbp, shape)


@method
def to_local(self) -> Tensor:
    """The part that this process holds: one process drives all devices, so the whole; each of several ranks its component,
    which is empty where the placement is others'. Nothing is sent."""
    if self._traced:
        raise NotImplementedError("to_local: a value inside nn.Graph lies on several devices at once; return it from build(), or "
                                  "bring it to one device with to_global(placement=...)")
    if not self._global:
        raise RuntimeError("to_local: the tensor is local already")
    return self._to_local()


@method
def check_meta_consistency(self) -> None:
    """Throws unless all ranks have the same dtype, shape, placement and sbp. Collective in a job of several ranks.
    oneflow.Tensor.check_meta_consistency."""
    job = _job()
    if job is not None:
        texts = job.all_gather_text(f"{self.dtype} of {tuple(self._shape)}, {self._global}")
        if len(set(texts)) > 1:
            raise _C.RuntimeError(f"check_meta_consistency: the ranks have {texts}; they must be equal")


Tensor.is_global = property(lambda self: _lies(self, "is_global") is not None)


def _of_global(name: str, index: int) -> property:
    def get(self) -> Any:
        lies = _lies(self, name)
        if lies is None:
            raise RuntimeError(f"{name}: the tensor is local; only global tensors have one (see to_global)")
        return (lies[1],) if name == "sbp" else lies[index]

    return property(get)


Tensor.placement = _of_global("placement", 0)
Tensor.sbp = _of_global("sbp", 1)
lay_alike_by(lie_like)
