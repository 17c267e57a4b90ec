"""rearrange(): axes by name. torch.func.rearrange, after einops."""

from __future__ import annotations

import math
import re
from typing import Any

from sluice._C import Tensor, fn


def _axes(expression: str, where: str) -> list:
    """The dims of one side: each a list of the axes it is made of; "..." stands for any."""
    if expression.count("(") != expression.count(")"):
        raise ValueError(f"Imbalanced parentheses in expression: '{expression}'")
    if re.search(r"\([^)]*\(", expression):
        raise ValueError("Axis composition is one-level (brackets inside brackets not allowed)")
    dims, seen = [], set()
    for group, single in re.findall(r"\(([^)]*)\)|(\.\.\.|[^\s()]+)", expression):
        names = [single] if single else re.findall(r"\.\.\.|\S+", group)
        for name in names:
            if name != "..." and name != "1" and not (name.isidentifier() and not name.startswith("_") and not name.endswith("_")):
                raise ValueError(f"Invalid axis identifier: {name}; in the {where} of the pattern")
            if name != "1" and name in seen:
                raise ValueError(f"Indexing expression contains duplicate dimension '{name}'")
            seen.add(name)
        dims.append([name for name in names if name != "1"])
    return dims


def _expanded(dims: list, rest: list) -> list:
    """`dims` with "..." as what it stands for: dims of its own, or within a group the axes of it."""
    out: list = []
    for dim in dims:
        if dim == ["..."]:
            out += [[name] for name in rest]
        else:
            out.append([n for name in dim for n in (rest if name == "..." else [name])])
    return out


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Tensor:
    """Dims of a tensor, or of a list of tensors stacked, permuted, split and joined: "b (h w) c -> b c h w", h=4. torch.func.rearrange."""
    if not isinstance(tensor, Tensor):
        tensor = fn.stack(list(tensor))
    if pattern.count("->") != 1:
        raise ValueError("Pattern must contain a single '->' separator")
    left, right = (_axes(side, name) for side, name in zip(pattern.split("->"), ("left side", "right side")))
    flat_left, flat_right = ({n for dim in side for n in dim} for side in (left, right))
    if "..." in flat_right and "..." not in flat_left:
        raise ValueError(f"Ellipsis found in right side, but not left side of a pattern {pattern}")
    if flat_left ^ flat_right:
        raise ValueError(f"Identifiers only on one side of rearrange expression (should be on both): {flat_left ^ flat_right}")
    if unknown := set(axes_lengths) - flat_left:
        raise ValueError(f"Identifiers not found in rearrange expression: {unknown}")
    any_dims = ["..."] in left
    more = tensor.ndim - (len(left) - any_dims)
    if more < 0 or (more and not any_dims):
        raise ValueError(f"Number of dimensions in pattern ({len(left) - any_dims}) must be equal to the number of dimensions "
                         "in the tensor "
                         f"({tensor.ndim})")
    rest = [f"...{i}" for i in range(more)]
    left, right = _expanded(left, rest), _expanded(right, rest)
    sizes: dict = dict(axes_lengths)
    for dim, size in zip(left, tensor._shape):
        unknown_axes = [n for n in dim if n not in sizes]
        known = math.prod(sizes[n] for n in dim if n in sizes)
        if len(unknown_axes) > 1:
            raise ValueError(f"rearrange: cannot infer the sizes of {unknown_axes} at once; give all but one")
        if unknown_axes:
            if not known or size % known:
                raise ValueError(f"rearrange: inferred dimension does not evenly fit into larger dimension: {size} and {known}")
            sizes[unknown_axes[0]] = size // known
        elif known != size:
            raise ValueError(f"rearrange: the axes {dim} have sizes {[sizes[n] for n in dim]}; their product must be {size}")
    order = [n for dim in left for n in dim]
    axes = [n for dim in right for n in dim]
    split = tensor.reshape([sizes[n] for n in order])
    return split.permute([order.index(n) for n in axes]).reshape([math.prod(sizes[n] for n in dim) for dim in right])
