"""Tables of optimizers added with is_sparse: a step reads and writes the rows that nn.Embedding has looked up, however many there are.

A lookup gives rows of their own, whose gradients the update takes; the table itself has no gradient.
"""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import zeros


class Tables:
    """The tables of one run of build(), traced or eager."""

    def __init__(self, optimizers: list[Any]) -> None:
        self._lookups: dict[int, list[tuple[Tensor, Tensor, Any]]] = {
            id(p): [] for optim in optimizers for group in optim._groups for p in group["params"] if p.ndim == 2}

    def has(self, weight: Any) -> bool:
        return id(weight) in self._lookups and _C.is_grad_enabled()

    def lookup(self, module: Any, indices: Tensor) -> Tensor:
        """The result of F.embedding."""
        weight = module.weight
        if module.max_norm is not None or module.scale_grad_by_freq:
            raise NotImplementedError("add_optimizer: is_sparse=True: an Embedding with max_norm or scale_grad_by_freq "
                                      "reads its whole table")
        if weight._global or weight.dtype in (_C.float16, _C.bfloat16):
            raise NotImplementedError(f"add_optimizer: is_sparse=True: a table is {weight.dtype.name}{tuple(weight.shape)}"
                                      f"{', global' if weight._global else ''}; it must be local, float32 or float64")
        flat = indices.reshape(-1).long()
        rows = weight.detach().index_select(0, flat).detach().requires_grad_(weight.requires_grad)
        self._lookups[id(weight)].append((flat, rows, module.padding_idx))
        return rows.reshape(*indices.shape, weight.shape[1])

    def has_gradient(self, p: Any) -> bool:
        return any(rows.grad is not None for _, rows, _ in self._lookups.get(id(p), ()))

    def update(self, optim: Any, group: Any, p: Any, state: Any) -> None:
        """The step of a table that has a gradient."""
        lookups = [(ids, rows.grad, padding) for ids, rows, padding in self._lookups[id(p)] if rows.grad is not None]
        if p.grad is not None:
            raise NotImplementedError("add_optimizer: is_sparse=True: a table has gradients of others than nn.Embedding, "
                                      "of F.embedding or a product with it, say; use is_sparse=False")
        grads = [grad if padding is None else grad.masked_fill((ids == padding).unsqueeze(1), 0) for ids, grad, padding in lookups]
        ids, totals = _totals(fn.cat([ids for ids, _, _ in lookups]), fn.cat(grads))
        of_rows = {name for name, value in state.items() if isinstance(value, Tensor) and value._shape == p._shape}
        now = {name: value.index_select(0, ids) if name in of_rows else value for name, value in state.items()}
        new, changed = optim._update(group, p.detach().index_select(0, ids), totals, now)
        p.index_copy_(0, ids, new)
        for name, value in changed.items():
            if name in of_rows:
                state[name].index_copy_(0, ids, value)
            else:
                state[name]._write(value)


def _totals(ids: Tensor, grads: Tensor) -> tuple[Tensor, Tensor]:
    """The indices in order, and of each the sum of its gradients, so that equal ones have equal sums."""
    ids, order = ids.sort(stable=True)
    first = fn.cat([zeros(1, dtype=_C.int64), (ids[1:] != ids[:-1]).long()])
    place = first.cumsum(0)  # of each among the different ones
    sums = zeros(grads.shape, dtype=grads.dtype).index_add(0, place, grads.index_select(0, order))
    return ids, sums.index_select(0, place)


def check(optim: Any) -> None:
    """Raises where rows of a table cannot be updated one by one."""
    if not optim.rowwise:
        raise NotImplementedError(f"add_optimizer: is_sparse=True: {type(optim).__name__} does not update row by row; SGD, Adam, "
                                  "AdamW, LazyAdam and Adagrad do")
    if any(group.get("clip_grad_max_norm") is not None for group in optim._groups):
        raise NotImplementedError("add_optimizer: is_sparse=True: clip_grad_max_norm needs the gradients of whole parameters")
