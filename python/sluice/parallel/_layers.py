"""Linear layers that say how they are split along an axis of a mesh."""

from __future__ import annotations

from typing import Any

from sluice import sbp as _sbp
from sluice._tensor.global_tensors import place, placement
from sluice.nn.modules.linear import Linear as _Linear
from sluice.sbp import broadcast, split


def _lay(module: Any, mesh: placement, axis: str, dims: dict[str, int]) -> None:
    for name, p in module._parameters.items():
        if p is not None:
            p.data = place(p.data, mesh, _sbp.each({axis: split(dims[name])} if name in dims else broadcast, mesh.names, mesh))


class Linear(_Linear):
    """nn.Linear on `mesh`, with its features split along `axis`: of parallel="col" those that come out, of "row" those that go
    in, and of "data" none. A "row" after a "col" adds up once."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, parallel: str = "data", mesh: placement,
                 axis: str = "tp", **options: Any) -> None:
        dims = {"data": {}, "col": {"weight": 0, "bias": 0}, "row": {"weight": 1}}
        if parallel not in dims:
            raise ValueError(f"Linear: parallel is {parallel!r}; must be 'data', 'col' or 'row'")
        n = mesh.size(axis) if parallel != "data" else 1
        features = {"data": n, "col": out_features, "row": in_features}[parallel]
        if features < n:
            raise ValueError(f"Linear: parallel={parallel!r} has {features} features for {n} devices of axis {axis!r}; each must get one")
        super().__init__(in_features, out_features, bias, **options)
        self.parallel = parallel
        _lay(self, mesh, axis, dims[parallel])
