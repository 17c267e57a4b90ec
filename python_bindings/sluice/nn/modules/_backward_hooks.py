"""Full backward hooks of modules: gradients with respect to inputs and outputs, through two identity functions."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
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


def _tapped(receive: Any, items: tuple, places: list[int]) -> tuple:
    """`items`, of which the tensors at `places` are tapped; `receive` gets and gives as many gradients as there are items."""
    def at_places(grads):
        full = dict(zip(places, grads))
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


def call_with_backward_hooks(module: Any, before: Any, after: Any, args: tuple, kwargs: dict) -> Any:
    """module.forward(*args, **kwargs); on the way back `before` get the gradients of outputs, `after` those of inputs, too.

    As torch, hooks see positional arguments and outputs that are tensors, by themselves or in a tuple or list; others are
    None.
    """
    grad_output: tuple = ()

    def on_input(grads):
        for hook in after:
            grads = _replaced("grad_input", grads, hook(module, grads, grad_output))
        return grads

    tapped = after and any(isinstance(a, Tensor) and a.requires_grad for a in args)
    if tapped:
        args = _tapped(on_input, args, [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad])
    output = module.forward(*args, **kwargs)
    items = tuple(output) if isinstance(output, (tuple, list)) else (output,)

    def on_output(grads):
        nonlocal grad_output
        for hook in before:
            grads = _replaced("grad_output", grads, hook(module, grads))
        grad_output = grads
        if not tapped:
            for hook in after:
                given = hook(module, (None,) * len(args), grads)
                if given is not None and not (isinstance(given, tuple) and all(g is None for g in given)):
                    raise RuntimeError("Backward hook for Modules where no input requires gradient should always return None or "
                                       "None for all gradients.")
        return grads

    places = [i for i, o in enumerate(items) if isinstance(o, Tensor) and o.requires_grad]
    if not places:
        return output
    items = _tapped(on_output, items, places)
    if not isinstance(output, (tuple, list)):
        return items[0]
    return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)
