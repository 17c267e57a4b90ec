"""Vocabularies in parts: of a table's rows, and of the classes of logits, each device of an axis has some. No device ever has the whole.

Both are written for the whole as (parts, rows of a part), which lies with its first dim along the axis: numbers that say where a
part begins then lie in the same way, and each device computes on its own.
"""

from __future__ import annotations

from typing import Any

from sluice import _C, sbp as _sbp
from sluice._C import Tensor, fn
from sluice._tensor.creation import arange, zeros_like
from sluice._tensor.global_tensors import place, placement
from sluice.nn.modules.module import Module
from sluice.nn.modules.sparse import Embedding as _Embedding
from sluice.parallel._layers import _lay

_REDUCTIONS = ("mean", "sum", "none")


def part_of(where: str, size: int, mesh: placement, axis: str) -> int:
    """The rows of each part of a vocabulary."""
    n = mesh.size(axis)
    if size % n:
        raise _C.ValueError(f"{where}: a vocabulary of {size} over the {n} devices of axis {axis!r}: must divide evenly; fill it up to "
                            f"{-(-size // n) * n}")
    return size // n


def _own(ids: Tensor, part: int, mesh: placement, axis: str) -> tuple[Tensor, Tensor]:
    """ids (N, 1) as places in each part (N, parts), and whether they are there; each device has those of its part."""
    places = ids - place(arange(mesh.size(axis)) * part, mesh, _sbp.each({axis: _sbp.split(0)}, mesh.names, mesh))
    return places.clamp(0, part - 1), (places >= 0) & (places < part)


def lookup(ids: Tensor, weight: Tensor, mesh: placement, axis: str = "tp") -> Tensor:
    """nn.functional.embedding of a table whose rows lie in parts along an axis: each device looks up what it has, and these add up."""
    (size, width), n = weight._shape, mesh.size(axis)
    part = part_of("embedding", size, mesh, axis)
    places, there = (t.transpose(0, 1) for t in _own(ids.reshape(-1, 1), part, mesh, axis))  # (n, N)
    table = weight.reshape(n, part, width)
    rows = fn.gather(table, 1, places.unsqueeze(2).expand(n, places._shape[1], width))
    return fn.where(there.unsqueeze(2), rows, zeros_like(rows)).sum(0).reshape(*ids._shape, width)


def cross_entropy(logits: Tensor, target: Tensor, *, mesh: placement, axis: str = "tp", ignore_index: int = -100,
                  reduction: str = "mean") -> Tensor:
    """nn.functional.cross_entropy of logits (..., V) and classes (...), with the classes in parts along an axis of `mesh`, as a
    head that is split "colwise" makes them. Only numbers of a row travel: maxima, sums, and the logit of the target."""
    if reduction not in _REDUCTIONS:
        raise _C.ValueError(f"cross_entropy: reduction is {reduction!r}; must be one of {', '.join(_REDUCTIONS)}")
    size, n = logits._shape[-1], mesh.size(axis)
    if tuple(target._shape) != tuple(logits._shape[:-1]):
        raise _C.ValueError(f"cross_entropy: target is {tuple(target._shape)}, logits are {tuple(logits._shape)}; must be classes, one "
                            "for each row of logits")
    part = part_of("cross_entropy", size, mesh, axis)
    x, classes = logits.reshape(-1, n, part), target.reshape(-1)
    x = x.float() if x.dtype in (_C.float16, _C.bfloat16) else x
    top = x.detach().amax(2).amax(1)
    x = x - top.reshape(-1, 1, 1)
    places, there = _own(classes.reshape(-1, 1), part, mesh, axis)
    picked = fn.gather(x, 2, places.unsqueeze(2)).squeeze(2)
    found = x.exp().sum((1, 2)).log() - fn.where(there, picked, zeros_like(picked)).sum(1)
    counts = classes != ignore_index
    found = fn.where(counts, found, zeros_like(found))
    if reduction == "none":
        return found.reshape(*target._shape)
    return found.sum() / counts.sum() if reduction == "mean" else found.sum()


class Embedding(_Embedding):
    """nn.Embedding on `mesh`, with its rows in parts along `axis`. For use inside nn.Graph."""

    def __init__(self, num_embeddings: int, embedding_dim: int, *, mesh: placement, axis: str = "tp", dtype: Any = None) -> None:
        part_of("Embedding", num_embeddings, mesh, axis)
        super().__init__(num_embeddings, embedding_dim, dtype=dtype)
        self._along(mesh, axis)
        _lay(self, mesh, axis, {"weight": 0})

    def _along(self, mesh: placement, axis: str) -> None:
        self.__dict__.update(mesh=mesh, axis=axis)

    def forward(self, ids: Tensor) -> Tensor:
        return lookup(ids, self.weight, self.mesh, self.axis)


def check_rows(module: Module, name: str, mesh: placement, axis: str) -> None:
    """Whether split_rows() can be."""
    if type(module) is not _Embedding or module.padding_idx is not None or module.max_norm is not None or module.scale_grad_by_freq:
        raise _C.ValueError(f"parallelize: '{name}' is to be 'vocabulary', and is {module!r}; must be an nn.Embedding without padding_idx, "
                            "max_norm and scale_grad_by_freq")
    part_of(f"parallelize: '{name}'", module.num_embeddings, mesh, axis)


def split_rows(module: Module, mesh: placement, axis: str) -> None:
    """Makes an nn.Embedding one of parts, in place. Its weight lies so afterwards."""
    module.__class__ = Embedding
    module._along(mesh, axis)


class CrossEntropyLoss(Module):
    """The module of cross_entropy()."""

    def __init__(self, *, mesh: placement, axis: str = "tp", ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__()
        self.__dict__["options"] = dict(mesh=mesh, axis=axis, ignore_index=ignore_index, reduction=reduction)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(logits, target, **self.options)


def split_sequence(module: Module, mesh: placement, dp: str, tp: str) -> None:
    """The module computes on parts of the sequence, the dim before the last: norms and dropout need no more (Korthikanti et al. 2022).
    It takes its input in parts, and gives its results in parts to others of its kind."""
    def lay(module: Module, args: tuple[Any, ...]) -> Any:
        x = args[0] if args else None
        if not isinstance(x, Tensor) or x.ndim < 2 or not _C.touches_graph(x):
            return None
        way = {tp: _sbp.split(x.ndim - 2), **({dp: _sbp.split(0)} if dp in mesh.names else {})}
        return (x.to_global(mesh, way, grad_sbp=way), *args[1:])

    module.register_forward_pre_hook(lay)
