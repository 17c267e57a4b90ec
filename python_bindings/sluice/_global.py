"""Global tensors: one logical tensor over several devices, for nn.Graph to split."""

from __future__ import annotations

from typing import Any

from sluice import _C, sbp as _sbp
from sluice._C import Tensor
from sluice._tensor_math import method


class placement:
    """A row of devices: placement("sim", [0, 1]), placement(type="cpu", ranks=[0])."""

    __slots__ = ("type", "ranks", "_mesh")

    def __init__(self, type: str, ranks: Any) -> None:
        ranks = list(ranks)
        if not ranks or not all(isinstance(r, int) and not isinstance(r, bool) and r >= 0 for r in ranks):
            raise ValueError(f"placement: ranks are {ranks!r}; must be a list of device numbers, like [0, 1]")
        self._mesh = _C.parse_mesh(",".join(f"{type}:{r}" for r in ranks))
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
        raise RuntimeError(f"{what}: where a traced tensor lies is decided when the graph is compiled; say it with to_global(...)")
    return known


def _placement_of(mesh: str) -> placement:
    devices = _C.mesh_devices(mesh)
    return placement(devices[0].partition(":")[0], [int(d.rpartition(":")[2]) for d in devices])


@method
def to_global(self, placement=None, sbp=None) -> Tensor:
    """The same logical tensor, over the devices of `placement` as `sbp` says; what is left out stays as it is.

    Eager tensors hold the whole and remember how graphs are to lay it; inside nn.Graph the compiler moves it.
    """
    if placement is None or sbp is None:
        now = _lies(self, "to_global")
        if not now:
            raise ValueError("to_global: a local tensor needs both placement= and sbp=")
        placement, sbp = placement or now[0], sbp or now[1]
    if not isinstance(placement, _Placement):
        raise TypeError(f"to_global: placement is {placement!r}; must be a sluice.placement")
    text = _sbp.one(sbp).text(self.ndim)
    result = _C.ops.to_global(self, mesh=placement._mesh, sbp=text) if _C.is_tracing() and not self._global else self
    if not result._traced:  # a constant, inside nn.Graph, too
        return self._to_global(placement._mesh, text)
    result._laid = (placement, _sbp.parse(text))
    return result


_Placement = placement


@method
def to_local(self) -> Tensor:
    """What this process holds: one process drives all devices, so the whole."""
    if self._traced:
        raise NotImplementedError("to_local: a value inside nn.Graph lies on several devices at once; return it from build(), or "
                                  "bring it to one device with to_global(placement=...)")
    if not self._global:
        raise RuntimeError("to_local: the tensor is local already")
    return self._to_local()


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
