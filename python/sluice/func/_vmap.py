"""Functions of one example as functions of a batch: torch.func.vmap."""

from __future__ import annotations

import functools
from numbers import Integral
from typing import Any, Callable

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import default_generator
from sluice._base.structure import Structure
from sluice.func._nests import Nest


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
         chunk_size: int | None = None) -> Callable[..., Any]:
    """A function that calls `func` for each slice of its arguments along `in_dims` and stacks the results along `out_dims`.

    That is how it works: one call a slice, so it takes the time of so many calls. Gradients flow, calls nest, and `func`
    may do anything, look at values, too. in_dims: an int or None (given whole to every call), or a tuple of these, nested
    as the arguments; arguments by keyword are given whole. randomness: "different" draws for each slice; "same" draws the
    same for all; "error" refuses draws from the default generator, except in a graph, where they are not noticed.
    chunk_size changes nothing.
    """
    if randomness not in ("error", "same", "different"):
        raise RuntimeError(f"vmap: Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness!r}")
    if chunk_size is not None and (not isinstance(chunk_size, Integral) or chunk_size <= 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not args:
            raise ValueError("vmap: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with no "
                             "inputs. The latter is unsupported.")
        if not isinstance(in_dims, (Integral, tuple, list)) or isinstance(in_dims, bool):
            raise ValueError(f"vmap: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: "
                             f"{type(in_dims).__name__}")
        positional = Nest(args)
        dims = [_dim_of(d, t) for d, t in zip(_spread(in_dims, positional.structure), positional.tensors)]
        size = _batch_size(zip(positional.tensors, dims))
        slices = []
        for row in _rows(size, randomness):
            taken = [t if d is None else t.select(d, row) for t, d in zip(positional.tensors, dims)]
            slices.append(func(*positional.build(taken), **kwargs))
        return _stacked(slices, out_dims)

    return wrapped


def _rows(size: int, randomness: str) -> Any:
    """0, 1, ..., and what is to happen to the default generator in between."""
    generator = default_generator
    if _C.is_tracing():
        if randomness == "same":
            raise NotImplementedError("vmap: randomness='same' in a graph: a plan draws by itself; draw outside of vmap, and pass it with "
                                      "in_dims=None")
        yield from range(size)
        return
    before = None if randomness == "different" else generator.get_state()
    for row in range(size):
        if randomness == "same" and row:
            generator.set_state(before)
        yield row
        if randomness == "error" and not generator.get_state().equal(before):
            raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
                               "randomness flags on vmap or perform the randomness operation out of vmap")


def _spread(dims: Any, structure: Structure) -> list[Any]:
    """`dims`, an int or None or nested as `structure`, for each tensor of that."""
    if dims is None or (isinstance(dims, Integral) and not isinstance(dims, bool)):
        if dims is not None and structure.constants():
            raise ValueError(f"vmap: Got in_dim={dims} for an input but the input is of type {type(structure.constants()[0]).__name__}. We "
                             "cannot vmap over non-Tensor arguments, please use None as the respective in_dim")
        return [dims] * structure.tensors()
    children = structure.children
    if structure.kind == "dict" and isinstance(dims, dict) and set(dims) == set(structure.value):
        dims = [dims[key] for key in structure.value]
    elif structure.kind not in ("tuple", "list", "namedtuple") or not isinstance(dims, (tuple, list)) or len(dims) != len(children):
        raise ValueError(f"vmap: in_dims is not compatible with the structure of inputs: got {dims!r} for a {structure.kind} of "
                         f"{len(children)}")
    return [d for dim, child in zip(dims, children) for d in _spread(dim, child)]


def _dim_of(dim: Any, t: Tensor) -> int | None:
    if dim is None:
        return None
    if not -t.ndim <= dim < t.ndim:
        raise ValueError(f"vmap: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {t.ndim} so expected "
                         f"in_dim to satisfy -{t.ndim} <= in_dim < {t.ndim}.")
    return dim % t.ndim


def _batch_size(pairs: Any) -> int:
    sizes = [t.shape[d] for t, d in pairs if d is not None]
    if not sizes:
        raise ValueError("vmap: at least one Tensor must be vmapped over: in_dims of all tensors are None")
    if len(set(sizes)) > 1:
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped "
                         "dimension")
    if sizes[0] == 0:
        raise ValueError("vmap: the mapped dimension is empty: there is no slice to call the function with; must have one at least")
    return sizes[0]


def _stacked(slices: list[Any], out_dims: Any) -> Any:
    nests = [Nest(value) for value in slices]
    first = nests[0]
    for constant in first.structure.constants():
        raise ValueError(f"vmap: the function must only return Tensors, got type {type(constant).__name__}")
    for nest in nests:
        if nest.structure != first.structure:
            raise RuntimeError("vmap: the function returned results nested in different ways for different slices; must be the same")
    single = first.structure.kind == "tensor"
    if single and isinstance(out_dims, (tuple, list)) and len(out_dims) == 1:
        out_dims = out_dims[0]
    try:
        dims = _spread(out_dims, first.structure)
    except ValueError:
        raise ValueError(f"vmap: out_dims is not compatible with the structure of outputs: got {out_dims!r}") from None
    found = []
    for dim, column in zip(dims, zip(*(nest.tensors for nest in nests))):
        shapes = {tuple(t.shape) for t in column}
        if len(shapes) > 1:
            raise RuntimeError(f"vmap: the function returned tensors of different shapes for different slices: {sorted(shapes)}")
        rank = column[0].ndim + 1
        if dim is not None and not -rank <= dim < rank:
            raise IndexError(f"vmap: Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
        found.append(column[0] if dim is None else fn.stack(column, dim))
    return first.build(found)
