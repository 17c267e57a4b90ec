"""Tensors that modules register as their own."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor


class Parameter(Tensor):
    """A leaf tensor that a Module registers as a parameter; shares its data with `data`."""

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        super().__init__(Tensor([]) if data is None else data.detach())
        if requires_grad:
            self.requires_grad_(True)

    def __deepcopy__(self, memo: Any) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        return memo[id(self)]

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self.detach().numpy(), self.requires_grad))


def _rebuild(cls: Any, array: Any, requires_grad: bool) -> Any:
    import sluice

    return cls(sluice.tensor(array), requires_grad)


