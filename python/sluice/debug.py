"""Looks into graphs and compiled code while they run: prints, callbacks and checks at each step, in the order of the steps.

    class Net(nn.Graph):
        def build(self, x):
            y = self.layer(x)
            debug.print("mean {} at {n}", y.mean(), n=self.n)
            debug.check((y >= 0).all(), "a negative activation, the least {}", y.min())
            return y

Debugger runs a saved graph one firing at a time: it stops where it is told to, looks into registers, and changes values.

What the functions look at is what a step has computed, whatever else is in work. Outside of graphs they run at once. Gradients do not pass through
them, and they are not allowed within loops of a graph.
"""

from __future__ import annotations

import builtins
from typing import Any, Callable

from sluice import _C
from sluice._C import Tensor
from sluice._base.structure import flatten
from sluice._tensor.creation import from_numpy
from sluice._tensor.debugger import Actor, Debugger, Firing, Register, Slot, Stop
from sluice._tensor.each_step import each_step

__all__ = ["Actor", "Debugger", "Firing", "Register", "Slot", "Stop", "callback", "check", "print"]


def print(text: str, *values: Any, **named: Any) -> None:  # noqa: A001 as JAX has it
    """Prints text.format(*values, **named) at each step; jax.debug.print. Tensors are shown as they are, and may have formats of numbers
    where they have one element."""
    if not isinstance(text, str):
        raise TypeError(f"debug.print: text: got {type(text).__name__}; must be a str, as '{{}}', with the values behind it")
    callback(lambda values, named: builtins.print(text.format(*map(_shown, values), **{k: _shown(v) for k, v in named.items()})), values, named)


def callback(function: Callable[..., Any], *args: Any) -> None:
    """Calls function(*args) at each step, with the values that tensors of the graph have then; jax.debug.callback, ordered.

    Tensors may be in lists, tuples and dicts. Its result is not used, and an exception of it is the step's error.
    """
    leaves: list[Tensor] = []
    structure = flatten(args, "args", leaves, [], others=True)
    traced = [bool(_C.touches_graph(leaf)) for leaf in leaves]

    def call(*arrays: Any) -> None:
        rest = iter(arrays)
        function(*structure.build(iter([from_numpy(next(rest).copy()) if t else leaf for leaf, t in zip(leaves, traced)])))

    call.fn = function  # type: ignore[attr-defined]
    if any(traced):
        each_step(call, *(leaf.detach() for leaf, t in zip(leaves, traced) if t))
    else:
        call()


def check(condition: Any, text: str, *values: Any) -> None:
    """Raises AssertionError(text.format(*values)) where the condition does not hold: of a step, when one of its results is read. jax's
    checkify.check. condition: a bool, or a tensor with one element."""
    def checked(holds: Any, values: Any) -> None:
        if not bool(holds):
            raise AssertionError(text.format(*map(_shown, values)))

    callback(checked, condition, values)


def _shown(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.ndim == 0 else value
