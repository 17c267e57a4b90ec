"""Functions of tensors whose arguments no signature of the forms can say: numbers or lists or tensors, lists of lists."""

from __future__ import annotations

import math
import operator
from numbers import Integral
from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._base.arguments import typed
from sluice._tensor.creation import _finish, arange, tensor


def _dims_to_contract(a: Tensor, b: Tensor, dims: Any) -> tuple:
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, Integral):
        if dims < 0:
            raise RuntimeError(f"tensordot: expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot: expects dims < ndim_a or ndim_b, but got dims={dims}")
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    if isinstance(dims, (str, bytes)) or not hasattr(dims, "__iter__"):
        raise _C.RuntimeError(f"tensordot: expects dims to be int or tuple[list[int], list[int]], but got dims={dims}")
    of_a, of_b = ([d] if isinstance(d, Integral) else list(d) for d in dims)
    return [d + a.ndim if d < 0 else d for d in of_a], [d + b.ndim if d < 0 else d for d in of_b]


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    """Sums of products over dims of both: how many, or which of each; torch.tensordot."""
    of_a, of_b = _dims_to_contract(a, b, dims)
    if len(of_a) != len(of_b):
        raise RuntimeError(f"both dimension lists should have same length: got {of_a} and {of_b}")
    for d, e in zip(of_a, of_b):
        if a._shape[d] != b._shape[e] and 1 not in (a._shape[d], b._shape[e]):
            raise RuntimeError(f"contracted dimensions need to match, but first has size {a._shape[d]} in dim {d} and second has "
                               f"size {b._shape[e]} in dim {e}")
        if a._shape[d] != b._shape[e]:  # a size of 1 stands for all
            a, b = (a.sum(d, keepdim=True).to(a.dtype), b) if b._shape[e] == 1 else (a, b.sum(e, keepdim=True).to(b.dtype))
    left = [d for d in range(a.ndim) if d not in of_a]
    right = [d for d in range(b.ndim) if d not in of_b]
    shape = [a._shape[d] for d in left] + [b._shape[d] for d in right]
    inner = 1
    for d in of_a:
        inner *= a._shape[d]
    rows, columns = (_product(x._shape[d] for d in dims) for x, dims in ((a, left), (b, right)))
    result = fn.matmul(a.permute((*left, *of_a)).reshape(rows, inner), b.permute((*of_b, *right)).reshape(inner, columns)).reshape(shape)
    return result if out is None else fn.add(result, 0, out=out)


def _letter(subscript: Any) -> str:
    if subscript is Ellipsis:
        return "..."
    number = operator.index(subscript)
    if not 0 <= number < 52:
        raise _C.ValueError(f"einsum(): subscript in subscript list is not within the valid range [0, 52): got {number}")
    return chr(ord("A") + number) if number < 26 else chr(ord("a") + number - 26)


def _einsum_by_lists(*args: Any, **keywords: Any) -> Any:
    """einsum(x, [0, 1], y, [1, 2], [0, 2]): labels are numbers, of each tensor in a list behind it, and of the result last."""
    tensors, labels = args[:len(args) // 2 * 2:2], args[1::2]
    lists = (*labels, args[-1]) if len(args) % 2 else labels
    if keywords or len(args) < 2 or not all(isinstance(t, Tensor) for t in tensors) or not all(isinstance(one, (list, tuple)) for one in lists):
        return NotImplemented
    equation = ",".join("".join(map(_letter, of_one)) for of_one in labels)
    if len(args) % 2:
        equation += "->" + "".join(map(_letter, args[-1]))
    return fn.einsum(equation, *tensors)


fn.einsum.otherwise = _einsum_by_lists


def _product(sizes: Any) -> int:
    n = 1
    for size in sizes:
        n *= size
    return n


def _differences(x: Tensor, points: Any, dim: int, edge_order: int) -> Tensor:
    """The slope of x along a dim: from both neighbours inside, from one or two at the ends."""
    n = x._shape[dim]

    def part(t, start, length=None):
        return t.narrow(dim, start, n - 2 if length is None else length)

    if isinstance(points, Tensor) and points.ndim:
        steps = points.diff().reshape([-1 if d == dim else 1 for d in range(x.ndim)])
        before, after = steps.narrow(dim, 0, n - 2), steps.narrow(dim, 1, n - 2)
        first, second, last_but_one, last = (steps.narrow(dim, i, 1) for i in (0, min(1, n - 2), max(n - 3, 0), n - 2))
    else:
        before = after = first = second = last_but_one = last = points
    if before is after:  # evenly spaced
        inside = (part(x, 2) - part(x, 0)) / (2 * before)
    else:
        weight_back, weight_on = -after / (before * (before + after)), before / (after * (before + after))
        inside = part(x, 0) * weight_back + part(x, 1) * ((after - before) / (before * after)) + part(x, 2) * weight_on
    if edge_order == 1:
        ends = [(part(x, 1, 1) - part(x, 0, 1)) / first, (part(x, n - 1, 1) - part(x, n - 2, 1)) / last]
    else:
        ends = [_one_sided(part(x, 0, 1), part(x, 1, 1), part(x, 2, 1), first, second),
                _one_sided(part(x, n - 1, 1), part(x, n - 2, 1), part(x, n - 3, 1), -last, -last_but_one)]
    return fn.cat([ends[0], inside, ends[1]], dim)


def _one_sided(y0: Tensor, y1: Tensor, y2: Tensor, h1: Any, h2: Any) -> Tensor:
    """The slope at the first of three points, h1 and then h2 apart, of the parabola through them."""
    total = h1 + h2
    return y0 * (-(2 * h1 + h2) / (h1 * total)) + y1 * (total / (h1 * h2)) - y2 * (h1 / (h2 * total))


@typed(input="Tensor", dim="int|ints|None", edge_order="int", spacing="Number|numbers|tensors")
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple:
    """Slopes along the dims, by central differences; spacing: a number, one per dim, or coordinates. torch.gradient."""
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, Integral) else list(dim)
    dims = [fn_axis(d, input.ndim) for d in dims]
    listed = isinstance(spacing, (list, tuple))
    spacings = list(spacing) if listed else [1 if spacing is None else spacing] * len(dims)
    if len(spacings) != len(dims):
        raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
                           f"{len(dims)}, got {len(spacings)}")
    for d, points in zip(dims, spacings):
        if input._shape[d] < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1, got "
                               f"{input._shape[d]} in dim {d}")
        if isinstance(points, Tensor) and points.ndim and points._shape != (input._shape[d],):
            raise RuntimeError(f"torch.gradient expected each element of spacing to have the size of its dim: got {points._shape}")
    values = input if input.dtype.is_floating_point or input.dtype.is_complex else input.to(_C.get_default_dtype())
    return tuple(_differences(values, points.item() if isinstance(points, Tensor) and not points.ndim else points, d, edge_order)
                 for d, points in zip(dims, spacings))


def fn_axis(dim: int, rank: int) -> int:
    if not -rank <= dim < max(rank, 1):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return dim % max(rank, 1)


def _triangle(name: str, lower: bool) -> Any:
    def indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None) -> Tensor:
        row, col, offset = map(operator.index, (row, col, offset))
        if row < 0 or col < 0:
            raise RuntimeError(f"{name}: row and col must be non-negative, got {row} and {col}")
        spans = [range(0, max(0, min(col, i + offset + 1))) if lower else range(min(col, max(0, i + offset)), col) for i in range(row)]
        pairs = [[i for i, span in enumerate(spans) for _ in span], [j for span in spans for j in span]]
        return tensor(pairs, dtype=dtype or _C.int64, device=device).reshape(2, -1)

    indices.__name__ = indices.__qualname__ = name
    indices.__doc__ = f"Row and column indices of the {'lower' if lower else 'upper'} triangle of a matrix, (2, n); torch.{name}."
    return indices


tril_indices, triu_indices = _triangle("tril_indices", True), _triangle("triu_indices", False)


def unravel_index(indices: Tensor, shape: Any) -> tuple:
    """Indices into a flattened tensor of that shape as one index per dim; torch.unravel_index."""
    shape = [shape] if isinstance(shape, Integral) else list(shape)
    if indices.dtype.is_floating_point or indices.dtype is _C.bool:
        raise _C.ValueError(f"unravel_index: indices have dtype {indices.dtype}; must be integers")
    found = []
    for size in reversed(shape):
        found.append(fn.remainder(indices, size))
        indices = fn.floor_divide(indices, size)
    return tuple(reversed(found))


@typed(start="Number|Tensor", end="Number|Tensor", steps="int", base="float", dtype="dtype|None")
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None,
             requires_grad: bool = False) -> Tensor:
    """base to `steps` powers, evenly spaced from start to end; torch.logspace."""
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative: got {steps}")
    dtype = dtype or _C.get_default_dtype()
    if steps > 1 and not (dtype.is_floating_point or dtype.is_complex):  # as torch: from and to whole powers, with others between them
        start, end = int(start), int(end)
    powers = fn.linspace(float(start), float(end), steps, _C.float64)
    return _finish(fn.pow(float(base), powers).to(dtype), device, requires_grad)


@typed(start="Number", end="Number", step="Number", dtype="dtype|None")
def range_(start: Any = 0, end: Any = None, step: Any = 1, **options: Any) -> Tensor:
    """start, start + step, ... up to and with end; torch.range."""
    if end is None:
        start, end = 0, start
    if step == 0:
        raise RuntimeError("range: step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"range: unsupported range: {start} -> {end}; both must be finite")
    if (end - start) * step < 0:
        raise RuntimeError(f"range: upper bound and lower bound inconsistent with step sign: from {start} to {end} by {step}")
    count = int((end - start) / step) + 1
    options.setdefault("dtype", _C.get_default_dtype())
    return arange(start, start + count * step - step / 2, step, **options)
