"""Tensors that modules register as their own."""

from sluice._C import Tensor


class Parameter(Tensor):
    """A leaf tensor that a Module registers as a parameter; shares its data with `data`."""

    def __init__(self, data=None, requires_grad=True):
        super().__init__(Tensor([]) if data is None else data.detach())
        if requires_grad:
            self.requires_grad_(True)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        return memo[id(self)]

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()

    def __reduce__(self):
        return (_rebuild, (type(self), self.detach().numpy(), self.requires_grad))


def _rebuild(cls, array, requires_grad):
    import sluice

    return cls(sluice.tensor(array), requires_grad)


