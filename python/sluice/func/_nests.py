"""Arguments and results of transformed functions: nests of tensors."""

from __future__ import annotations

from typing import Any, Sequence

from sluice._base import structure
from sluice._C import Tensor


class Nest:
    """The tensors of a nest, and how to put others in their places."""

    def __init__(self, value: Any) -> None:
        self.tensors: list[Tensor] = []
        self.names: list[str] = []
        self.structure = structure.flatten(value, "", self.tensors, self.names, others=True)

    def build(self, leaves: Sequence[Any]) -> Any:
        return self.structure.build(iter(leaves))


def check_tensors(where: str, value: Any, what: str) -> Nest:
    """Throws TypeError unless `value` has nothing but tensors."""
    nest = Nest(value)
    if nest.structure.constants():
        raise TypeError(f"{where}: {what} must be Tensors, or lists, tuples and dicts of them, got a "
                        f"{type(nest.structure.constants()[0]).__name__}")
    return nest
