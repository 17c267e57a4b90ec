"""torch.distributed's descriptions of how tensors lie, which plans of models carry, and what refuses."""

from __future__ import annotations

from typing import Any

from sluice import distributed
from sluice.mock_torch._private.made import module
from sluice.mock_torch._private.refused import REFUSED, refused_module


class Placement:
    """How a tensor would lie over a mesh of devices: only a description, for plans that are never carried out here."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.args == other.args

    def __hash__(self) -> int:
        return hash((type(self), self.args))


class Backend(str):
    """The names of torch's carriers, in small letters; Sluice has gloo's place alone (sluice.distributed.init)."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: {name!r}")
        return super().__new__(cls, name.lower())


_KINDS = {name: type(name, (Placement,), {"__doc__": f"torch.distributed.tensor.{name}, as a description."})
          for name in ("Replicate", "Shard", "Partial")}
_PLACEMENTS = {"Placement": Placement, **_KINDS}
MODULES = {name: refused_module(name) for name in REFUSED if name.startswith(("torch.distributed.", "torch._C._distributed"))}
for _name in ("torch.distributed.tensor", "torch.distributed._tensor", "torch.distributed.tensor.placement_types"):
    MODULES[_name] = refused_module(_name, **_PLACEMENTS)
MODULES["torch.distributed.constants"] = module("torch.distributed.constants", default_pg_timeout=distributed.default_pg_timeout)
for _name in list(MODULES):  # those above, which have nothing but modules
    while _name.count(".") > 1:
        _name = _name.rpartition(".")[0]
        MODULES.setdefault(_name, refused_module(_name))
_NO = ("is_gloo_available", "is_torchelastic_launched", "is_mpi_available", "is_nccl_available", "is_ucc_available", "is_xccl_available")
MEMBERS = {"torch.distributed": {**REFUSED["torch.distributed"], "Backend": Backend, **{name: lambda: False for name in _NO}}}
del MODULES["torch._C"]
