"""Global tensors: one logical tensor over several devices, for nn.Graph to split.

In a job of several ranks each has its component of an eager one; what needs others' is collective: to_global().
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C, sbp as _sbp
from sluice._C import Tensor
from sluice._tensor.components import combine, convert, lay
from sluice._tensor.creation import lay_alike_by
from sluice._tensor.methods import method


def _job() -> Any:
    """The world of several ranks that this process is in, with nothing under way; or None."""
    from sluice._base.job import state

    state.settle()
    return state.world if state.world is not None and state.world.size > 1 else None


def _grid(ranks: Any) -> tuple[list[int], list[int]]:
    """The numbers in nested lists, and the sizes of the block that they make."""
    if isinstance(ranks, Integral) and not isinstance(ranks, bool):
        return [int(ranks)], []
    if isinstance(ranks, (str, bytes, dict)) or not hasattr(ranks, "__iter__"):
        raise TypeError
    parts = [_grid(part) for part in ranks]
    if not parts or any(shape != parts[0][1] for _, shape in parts):
        raise TypeError
    return [rank for flat, _ in parts for rank in flat], [len(parts), *parts[0][1]]


class placement:
    """A row of devices, or a block of several axes: placement("sim", [0, 1]), placement("cpu", [[0, 1], [2, 3]],
    names=("dp", "tp")).

    Numbers are the job's devices: of one process its own; of several ranks each drives the one of its number. Axes without
    names are counted. Placements are equal if they have the same devices in the same block.
    """

    __slots__ = ("type", "ranks", "shape", "names", "_mesh", "_flat")

    def __init__(self, type: str, ranks: Any, names: Any = None) -> None:
        try:
            flat, shape = _grid(ranks)
            if not shape or min(flat) < 0:
                raise TypeError
        except TypeError:
            raise _C.ValueError(f"placement: ranks are {ranks!r}; must be a list of device numbers, like [0, 1], or lists of one "
                                "length, like [[0, 1], [2, 3]]") from None
        if names is not None and (isinstance(names, str) or len(names) != len(shape)):
            raise _C.ValueError(f"placement: names are {names!r}; must be {len(shape)}, one for each axis of {shape}")
        job = _job()
        if job is None:
            devices = [f"{type}:{r}" for r in flat]
        elif max(flat) < job.size:
            devices = [f"{r}/{type}:{job.local_ranks[r] if type == 'cuda' else 0}" for r in flat]
        else:
            raise _C.ValueError(f"placement: rank {max(flat)}; the job has ranks 0 to {job.size - 1}")
        sizes = [f"{name}={n}" for name, n in zip(names, shape)] if names is not None else list(map(str, shape))
        axes = f" ({', '.join(sizes)})" if len(shape) > 1 or names is not None else ""
        self._keep(_C.parse_mesh(",".join(devices) + axes), type, flat)

    def _keep(self, mesh: str, type: str, flat: list[int]) -> None:
        axes = _C.mesh_axes(mesh)
        self._mesh, self.type, self._flat = mesh, type, tuple(flat)
        self.shape, self.names = tuple(n for _, n in axes), tuple(name or None for name, _ in axes)
        nested: Any = flat
        for n in reversed(self.shape[1:]):
            nested = [tuple(nested[i:i + n]) for i in range(0, len(nested), n)]
        self.ranks = tuple(nested)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, placement) and (self._row, self.shape) == (other._row, other.shape)

    def __hash__(self) -> int:
        return hash((self._row, self.shape))

    @property
    def _row(self) -> str:
        return self._mesh.partition(" (")[0]

    def axis(self, name: str) -> int:
        """The number of the axis of this name."""
        if name is None or name not in self.names:
            known = ", ".join(repr(known) for known in self.names if known) or "none has a name"
            raise _C.ValueError(f"placement: {self} has no axis {name!r}; its axes: {known}")
        return self.names.index(name)

    def size(self, name: str | None = None) -> int:
        """The number of devices, or of those along the axis of a name."""
        return len(self._flat) if name is None else self.shape[self.axis(name)]

    def __repr__(self) -> str:
        def lists(nested: Any) -> Any:
            return [lists(part) for part in nested] if isinstance(nested, tuple) else nested

        names = f", names={self.names}" if any(self.names) else ""
        return f"sluice.placement(type='{self.type}', ranks={lists(self.ranks)}{names})"

    def __str__(self) -> str:
        return self._mesh


def _lies(t: Any, what: str) -> Any:
    """(placement, sbp of each of its axes) of a tensor that says so; None of a local one."""
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
    made._keep(mesh, devices[0][1], [rank if several else int(index) for rank, _, index in devices])
    return made


@method
def to_global(self, placement=None, sbp=None, *, grad_sbp=None) -> Tensor:
    """The same logical tensor, over the devices of `placement` as `sbp` says; what is left out stays as it is.

    `sbp` is one for each axis of the placement: sbp.split(0) on a row, (sbp.split(0), sbp.broadcast) on a block of two axes, or
    a dict by the names of axes. An axis cuts what the axes before it have left. Eager tensors remember how graphs are to lay
    them; inside nn.Graph the compiler moves them. The memory of an eager one holds the whole; in a job of several ranks, what
    this rank has of it. There all ranks must make the call: a local tensor becomes this rank's component (the part of split, an
    addend of partial_sum; broadcast gives all ranks what the placement's first one along that axis has), and a global one is
    brought from lying one way to lying another.

    `grad_sbp`, inside nn.Graph: the gradient of the result is laid so on its way back. It changes no value.
    """
    if placement is None or sbp is None:
        now = _lies(self, "to_global")
        if not now:
            raise _C.ValueError("to_global: a local tensor needs both placement= and sbp=")
        if placement is not None and len(now[0].shape) != len(placement.shape):
            raise _C.ValueError(f"to_global: sbp is left out, and {placement} has other axes than {now[0]}; give one for each axis")
        placement, sbp = placement or now[0], sbp or now[1]
    if not isinstance(placement, _Placement):
        raise TypeError(f"to_global: placement is {placement!r}; must be a sluice.placement")
    lies = _sbp.each(sbp, placement.names, placement)
    text = _sbp.text(lies, self.ndim)
    if _C.touches_graph(self):
        lies = _sbp.parse(text)
        row = len(lies) == 1
        result = _C.ops.to_global(self, mesh=_C.mesh_devices(placement._mesh) if row else [placement._mesh],
                                  sbp=lies[0].kind if row else text, axis=lies[0].dim or 0 if row else 0)
        result._laid = (placement, lies)
        if grad_sbp is not None and result.requires_grad:
            way = _sbp.each(grad_sbp, placement.names, placement)
            _sbp.text(way, self.ndim)
            result.register_hook(lambda grad: grad.to_global(placement, way))
        return result
    if grad_sbp is not None:
        raise NotImplementedError("to_global: grad_sbp: eager code has no gradients of global tensors; call it inside nn.Graph")
    job = _job()  # a constant, inside nn.Graph, too
    if job is None:
        return self._to_global(placement._mesh, text)
    return (convert if self._global else combine)(job, self, placement, text).requires_grad_(self.requires_grad)


_Placement = placement


def lie_like(local: Tensor, like: Tensor) -> Tensor:
    """A tensor of the shape of what this process has of the global tensor `like`, lying as that does. With partial_sum, the
    first rank's is the value and the others' are 0."""
    job = _job()
    if job is None:
        return local._to_global(*like._global)
    whole = tuple(_sbp.broadcast if one == _sbp.partial_sum else one for one in like.sbp)
    laid = lay(job, local, like.placement, _sbp.text(whole, len(like._shape)), like._shape)
    return laid if whole == like.sbp else laid.to_global(sbp=like.sbp)


def place(x: Tensor, placement: Any, sbp: Any) -> Tensor:
    """to_global() of what all ranks have whole."""
    return (x if x._global else x.to_global(placement, _sbp.broadcast)).to_global(placement, sbp)


def fill(target: Tensor, source: Tensor) -> None:
    """target.copy_(source); in a job of several ranks the target may be global, and the source, of which all have it whole."""
    if target._global and _job():
        source, target = place(source, target.placement, target.sbp).to_local(), target.detach().to_local()
    target.copy_(source)


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
        return lies[index]

    return property(get)


Tensor.placement = _of_global("placement", 0)
Tensor.sbp = _of_global("sbp", 1)
lay_alike_by(lie_like)
