"""Full backward hooks of modules: gradients with respect to inputs and outputs, through two identity functions."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice.autograd import Function


class _Tap(Function):
    """Passes tensors through; on the way back hands their gradients to `receive`, which may replace them."""

    @staticmethod
    def forward(ctx: Any, receive: Any, *tensors: Any) -> Tensor:
        ctx.receive = receive
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        replaced = ctx.receive(grads)
        return (None, *(grads if replaced is None else replaced))


def call_with_backward_hooks(module: Any, args: Any, kwargs: Any) -> Any:
    state = {}

    def on_output(grads):
        state["grad_output"] = grads

    def on_input(grads):
        for hook in list(module._backward_hooks.values()):
            replaced = hook(module, grads, state.get("grad_output"))
            if replaced is not None:
                grads = replaced if isinstance(replaced, tuple) else (replaced,)
        return grads

    taken = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
    if taken:
        tapped = _Tap.apply(on_input, *(args[i] for i in taken))
        tapped = tapped if isinstance(tapped, tuple) else (tapped,)
        args = list(args)
        for i, t in zip(taken, tapped):
            args[i] = t
    output = module.forward(*args, **kwargs)
    single = isinstance(output, Tensor)
    outputs = (output,) if single else tuple(output)

    def on_output_alone(grads):
        on_output(grads)
        if not taken:
            on_input(())

    tapped = _Tap.apply(on_output_alone, *outputs)
    tapped = tapped if isinstance(tapped, tuple) else (tapped,)
    return tapped[0] if single else type(output)(tapped)
