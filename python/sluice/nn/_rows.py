"""Tables whose gradient is sparse: the rows that nn.Embedding(sparse=True) has looked up, in `.grad` of its weight, as in torch."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._base.grad_mode import no_grad
from sluice._base.parts import has_parts
from sluice._C import fn, Tensor
from sluice.autograd.function import Function
from sluice.autograd.passes import wants_inputs
from sluice.nn.parameter import Parameter

_dense_grad: Any = Tensor.grad


class RowsParameter(Parameter):
    """A Parameter that becomes one of this class when its rows are looked up, and saved is as the former.

    Rows' gradients lie beside that of the engine, which is dense; where there are both, `.grad` is their dense sum.
    """

    @property
    def grad(self) -> Any:
        rows, dense = self.__dict__.get("_grad_of_rows"), _dense_grad.__get__(self)
        if rows is None or dense is None:
            return dense if rows is None else rows
        return dense + rows

    @grad.setter
    def grad(self, grad: Any) -> None:
        sparse = has_parts(grad)
        if sparse and grad._shape != self._shape:
            raise _C.RuntimeError(f"grad: shape {grad._shape}; must be {self._shape}, as the parameter's")
        self.__dict__.pop("_grad_of_rows", None)
        _dense_grad.__set__(self, None if sparse else grad)
        if sparse:
            self.__dict__["_grad_of_rows"] = grad

    def _add_rows(self, grad: Any) -> None:
        held = self.__dict__.get("_grad_of_rows")
        self.__dict__["_grad_of_rows"] = grad if held is None else held + grad

    def as_saved(self) -> Any:
        """The Parameter that a file gets of it."""
        same = Parameter(self.detach(), self.requires_grad)
        same.__dict__.update({name: value for name, value in self.__dict__.items() if name != "_grad_of_rows"})
        return same

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_saved().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        if id(self) not in memo:
            memo[id(self)] = self.as_saved().__deepcopy__(memo)
        return memo[id(self)]


class _Lookup(Function):
    @staticmethod
    def forward(ctx: Any, weight: Any, input: Any, padding_idx: Any) -> Any:  # noqa: A002
        ctx.table, ctx.padding_idx = weight, padding_idx
        ctx.save_for_backward(input)
        return fn.index_select(weight.detach(), 0, input.reshape(-1)).reshape(*input._shape, *weight._shape[1:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        from sluice.sparse._make import sparse_coo_tensor

        table, grad = ctx.table, grad_outputs[0]
        index = ctx.saved_tensors[0].reshape(-1).to(_C.int64)
        with no_grad():
            values = grad.detach().reshape(-1, *table._shape[1:])
            if ctx.padding_idx is not None:
                kept = fn.nonzero(index != ctx.padding_idx).reshape(-1)
                index, values = index[kept], values[kept]
            if wants_inputs():  # autograd.grad() gives what the engine holds
                return fn.index_add(values.new_zeros(table._shape), 0, index, values), None, None
            table._add_rows(sparse_coo_tensor(index.unsqueeze(0), values, tuple(table._shape)))
        return None, None, None


def lookup(weight: Any, input: Any, padding_idx: Any) -> Any:  # noqa: A002
    """The rows of a table; its gradient has those alone. None: this is no place for sparse gradients, as a graph is none."""
    if _C.is_tracing() or weight._traced or not weight.requires_grad or not _C.is_grad_enabled() or not weight.is_leaf:
        return None
    if type(weight) is Parameter:
        weight.__class__ = RowsParameter
    return _Lookup.apply(weight, input, padding_idx) if isinstance(weight, RowsParameter) else None
