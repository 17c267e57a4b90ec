"""What sparse tensors compute with their dense parts. All of it is made of ordinary ops, so that it has their gradients and graphs."""

from __future__ import annotations

import math
from typing import Any

from sluice import _C
from sluice._C import fn
from sluice._tensor.creation import arange


def numbers_like(t: Any, count: int) -> Any:
    """0, 1, ... count-1, where `t` is."""
    return arange(count, dtype=_C.int64, device=None if t._traced else t._device)


def keys_of(indices: Any, sizes: Any) -> Any:
    """The place of each element in row-major order; indices: (len(sizes), nnz)."""
    if not sizes:
        return indices.new_zeros((indices._shape[1],))
    key = indices[0]
    for d in range(1, len(sizes)):
        key = key * sizes[d] + indices[d]
    return key


def indices_of(keys: Any, sizes: Any) -> Any:
    """The inverse of keys_of()."""
    rows = []
    for size in reversed(sizes):
        rows.append(keys % max(size, 1))
        keys = keys // max(size, 1)
    return fn.stack(rows[::-1]) if rows else keys.new_zeros((0, keys._shape[0]))


def added(values: Any, places: Any, count: int) -> Any:
    """(count, ...): the sums of the values that have each place."""
    return fn.index_add(values.new_zeros((count, *values._shape[1:])), 0, places, values)


def summed(keys: Any, values: Any) -> tuple[Any, Any]:
    """The keys there are, in order, and the sum of each one's values."""
    unique, inverse = fn.unique(keys, return_inverse=True)
    return unique, added(values, inverse, unique._shape[0])


def rows_of(compressed: Any, nnz: int) -> Any:
    """The row of each element, from where rows begin."""
    return fn.searchsorted(compressed, numbers_like(compressed, nnz), right=True) - 1


def begins_of(rows: Any, count: int) -> Any:
    """(count + 1): where each of `count` rows begins. REQUIRES: rows are in order."""
    return fn.searchsorted(rows, numbers_like(rows, count + 1))


def dense(indices: Any, values: Any, shape: Any) -> Any:
    """A dense tensor of this shape."""
    sizes = shape[:indices._shape[0]]
    return added(values, keys_of(indices, sizes), math.prod(sizes)).reshape(tuple(shape))


def product(rows: Any, columns: Any, values: Any, count: int, other: Any) -> Any:
    """The (count, ...) product of a matrix of these elements and a dense matrix or vector."""
    read = fn.index_select(other, 0, columns)
    return added(read * (values if other.ndim == 1 else values.unsqueeze(1)), rows, count)


_REDUCTIONS = {"amax": "amax", "max": "amax", "amin": "amin", "min": "amin", "mean": "mean"}


def reduced(rows: Any, columns: Any, values: Any, count: int, other: Any, reduce: str) -> Any:
    """product() with another reduction than sums; rows without elements are zeros."""
    if reduce == "sum":
        return product(rows, columns, values, count, other)
    if reduce not in _REDUCTIONS:
        raise _C.ValueError(f"sparse.mm: reduce: {reduce!r}; must be 'sum', 'mean', 'amax' or 'amin'")
    read = fn.index_select(other, 0, columns) * values.unsqueeze(1)
    index = rows.unsqueeze(1).expand(read._shape)
    start = read.new_zeros((count, *read._shape[1:]))
    return fn.scatter_reduce(start, 0, index, read, _REDUCTIONS[reduce], include_self=False)


def product_of_sparse(a: Any, b: Any, width: int) -> tuple[Any, Any]:
    """The keys, in order, and values of the product of two sparse matrices.

    a: (rows, columns, values). b: (begins of rows, columns, values), of `width` columns.
    """
    rows, columns, values = a
    begins, other_columns, other_values = b
    counts = (begins[1:] - begins[:-1])[columns]
    source = fn.repeat_interleave(numbers_like(rows, rows._shape[0]), counts)  # the element of a that each product has
    first = fn.cumsum(counts, 0) - counts  # where the products of each element of a begin
    read = numbers_like(rows, source._shape[0]) - first[source] + begins[columns][source]
    return summed(rows[source] * width + other_columns[read], values[source] * other_values[read])


def common(keys: Any, other: Any) -> tuple[Any, Any]:
    """Where the keys that both have are in each. REQUIRES: keys are in order, and each is there once."""
    if not keys._shape[0] or not other._shape[0]:
        none = keys.new_zeros((0,))
        return none, none
    at = fn.searchsorted(other, keys).clamp(max=other._shape[0] - 1)
    found = fn.nonzero(other[at] == keys).reshape(-1)
    return found, at[found]


def softmax(keys: Any, values: Any, log: bool) -> Any:
    """The softmax of the values that have equal keys."""
    unique, group = fn.unique(keys, return_inverse=True)
    count = unique._shape[0]
    index = group.reshape(-1, *[1] * (values.ndim - 1)).expand(values._shape)
    most = fn.scatter_reduce(values.detach().new_zeros((count, *values._shape[1:])), 0, index, values.detach(), "amax",
                             include_self=False)
    shifted = values - most[group]
    exps = shifted.exp()
    sums = added(exps, group, count)
    return shifted - sums.log()[group] if log else exps / sums[group]
