"""Objects of dense tensors that say that they are tensors, as sparse ones do. What follows tensors into graphs follows their parts.

Their class defines `_to_parts()`, which gives (attributes that are dense tensors by name, all else as what can be compared), and a
static `_of_parts(else, tensors)`.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator

from sluice._C import Tensor


def is_dense(value: Any) -> bool:
    """Whether the value is a tensor of its own: isinstance() is true of objects of tensors, too."""
    return issubclass(type(value), Tensor)


def has_parts(value: Any) -> bool:
    return hasattr(type(value), "_of_parts")


def dense_parts(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """(name, tensor), with the parts of those that have some in their place."""
    for name, value in named:
        if is_dense(value):
            yield name, value
        elif has_parts(value):
            yield from ((f"{name}.{part}", t) for part, t in value._to_parts()[0].items())
