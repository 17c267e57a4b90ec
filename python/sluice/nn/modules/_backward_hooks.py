"""Full backward hooks of modules: gradients with respect to inputs and outputs, through two identity functions."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice._tensor.creation import zeros
from sluice.autograd import Function


class _Tap(Function):
    """Passes tensors through; on the way back hands their gradients to `receive`, which may replace them."""

    @staticmethod
    def forward(ctx: Any, receive: Any, *tensors: Any) -> Any:
        ctx.receive = receive
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.receive(grads))


def _tapped(receive: Any, items: tuple, none_is_zero: bool) -> tuple:
    """`items`, of which tensors that require a gradient are tapped. `receive` gets and gives as many gradients as there are
    items; of tensors that have none, zeros or None, and None of what is no tensor."""
    tensors = {i: (item.shape, item.dtype) for i, item in enumerate(items) if isinstance(item, Tensor)}
    places = [i for i in tensors if items[i].requires_grad]

    def at_places(grads):
        full = {i: g for i, g in zip(places, grads) if g is not None}
        if none_is_zero:
            full |= {i: zeros(shape, dtype=dtype) for i, (shape, dtype) in tensors.items() if i not in full}
        given = receive(tuple(full.get(i) for i in range(len(items))))
        return tuple(given[i] for i in places)

    tapped = dict(zip(places, _Tap.apply(at_places, *(items[i] for i in places))))
    return tuple(tapped.get(i, item) for i, item in enumerate(items))


def _replaced(what: str, grads: tuple, by: Any) -> tuple:
    if by is None:
        return grads
    by = by if isinstance(by, tuple) else (by,)
    if len(by) != len(grads):
        kind = "Backward hook" if what == "grad_input" else "Backward pre hook"
        raise RuntimeError(f"{kind} returned an invalid number of {what}, got {len(by)}, but expected {len(grads)}")
    return by


class BackwardHooks:
    """The hooks of one call: on the way back `before` get the gradients of outputs, `after` those of inputs, too.

    As torch, hooks see positional arguments and outputs that are tensors, by themselves or in a tuple or list.
    """

    def __init__(self, module: Any, before: Any, after: Any) -> None:
        self._module, self._before, self._after = module, before, after
        self._grad_output: tuple = ()
        self._inputs = 0
        self._tapped = False

    def arguments(self, args: tuple) -> tuple:
        """The arguments to call forward() with."""
        self._inputs = len(args)
        self._tapped = bool(self._after) and any(isinstance(a, Tensor) and a.requires_grad for a in args)
        return _tapped(self._on_input, args, none_is_zero=True) if self._tapped else args

    def result(self, output: Any) -> Any:
        """The output that the caller gets."""
        items = tuple(output) if isinstance(output, (tuple, list)) else (output,)
        if not any(isinstance(o, Tensor) and o.requires_grad for o in items):
            return output
        items = _tapped(self._on_output, items, none_is_zero=False)
        if not isinstance(output, (tuple, list)):
            return items[0]
        return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)

    def _on_input(self, grads: tuple) -> tuple:
        for hook in self._after:
            grads = _replaced("grad_input", grads, hook(self._module, grads, self._grad_output))
        return grads

    def _on_output(self, grads: tuple) -> tuple:
        for hook in self._before:
            grads = _replaced("grad_output", grads, hook(self._module, grads))
        self._grad_output = grads
        for hook in () if self._tapped else self._after:
            given = hook(self._module, (None,) * self._inputs, grads)
            if given is not None and not (isinstance(given, tuple) and all(g is None for g in given)):
                raise RuntimeError("Backward hook for Modules where no input requires gradient should always return None or None for "
                                   "all gradients.")
        return grads
