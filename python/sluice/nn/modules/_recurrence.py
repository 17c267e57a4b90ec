"""The mathematics of recurrent nets: one step of each kind, and a layer over all steps in one direction.

The input's part of all steps is one matmul before the first. Biases are added there, too, but for a GRU's of the state, of
which a part is multiplied by the reset gate.
"""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice.amp.autocast_mode import is_autocast_enabled
from sluice.autograd import Function
from sluice.nn import functional as F


class _Parts(Function):
    """The steps of (time, batch, width), or of packed rows with the batch sizes of the steps.

    The gradient is one stack, or one cat; that of slices would be a sum of as many whole tensors.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int] | None) -> Any:
        ctx.packed = sizes is not None
        return tuple(x.unbind(0) if sizes is None else x.split(sizes))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return fn.cat(grads) if ctx.packed else fn.stack(grads), None


def project(mode: str, x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """The input's part of the gates: x W_ih^T and biases."""
    bias = weights.get("bias_ih")
    if bias is not None and mode != "GRU":
        bias = bias + weights["bias_hh"]
    return F.linear(x, weights["weight_ih"], bias)


def step(mode: str, x: Tensor, states: tuple, weights: dict[str, Tensor]) -> tuple:
    """The states after a step; x: what project() gives."""
    h = states[0]
    if mode == "GRU":
        hidden = h.shape[1]
        own = F.linear(h, weights["weight_hh"], weights.get("bias_hh"))
        x_gates, x_new = x.split([2 * hidden, hidden], 1)
        h_gates, h_new = own.split([2 * hidden, hidden], 1)
        reset, update = (x_gates + h_gates).sigmoid().chunk(2, 1)
        new = (x_new + reset * h_new).tanh()
        return (new + update * (h - new),)
    own = F.linear(h, weights["weight_hh"])
    if mode == "LSTM":
        if x.dtype == own.dtype == states[1].dtype and not x.dtype.is_complex:
            h, c, _ = _C.ops.lstm_cell(x, own, states[1])
        else:  # under autocast, or complex
            i, f, g, o = (x + own).chunk(4, 1)
            c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return (F.linear(h, weights["weight_hr"]) if "weight_hr" in weights else h, c)
    gates = x + own
    return (gates.relu() if mode == "RNN_RELU" else gates.tanh(),)


def run(mode: str, data: Tensor, sizes: list[int] | None, states: tuple, weights: dict[str, Tensor],
        reverse: bool) -> tuple[Tensor, tuple]:
    """A layer over (time, batch, width) or, with the batch sizes of the steps, over packed rows: (outputs, last states).

    Sequences of a packed batch are longest first. Forwards, the states of those that have ended are put aside; backwards,
    sequences join at their last step with their initial state.
    """
    packed, shape = sizes is not None, data.shape
    inputs = project(mode, data, weights)
    if not packed and shape[0] > 1 and _may_loop(inputs, states):
        return _loop(mode, inputs, states, weights, reverse)
    parts = _Parts.apply(inputs, sizes)
    sizes = sizes if packed else [shape[1]] * shape[0]
    initial, ended, outputs = states, [], [None] * len(sizes)
    now = sizes[-1] if reverse else sizes[0]
    states = tuple(s[:now] for s in initial) if now < initial[0].shape[0] else initial
    for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
        if sizes[t] < now:
            ended.append(tuple(s[sizes[t]:] for s in states))
            states = tuple(s[:sizes[t]] for s in states)
        elif sizes[t] > now:
            states = tuple(fn.cat([s, first[now:sizes[t]]]) for s, first in zip(states, initial))
        now = sizes[t]
        states = step(mode, parts[t], states, weights)
        outputs[t] = states[0]
    if ended:
        states = tuple(fn.cat(rows) for rows in zip(states, *reversed(ended)))
    return fn.cat(outputs) if packed else fn.stack(outputs), states


def _may_loop(inputs: Tensor, states: tuple) -> bool:
    if not _C.is_tracing() or is_autocast_enabled("cpu") or any(s.dtype is not inputs.dtype for s in states):
        return False
    return not _C.varies(inputs)  # how long it is in a step goes through ops, not through loops


def _loop(mode: str, inputs: Tensor, states: tuple, weights: dict[str, Tensor], reverse: bool) -> tuple[Tensor, tuple]:
    """The same as a loop of the plan, which is as large for any number of steps."""

    def body(taken):
        made = step(mode, taken[-1], tuple(taken[:-1]), weights)
        return [*made, made[0]]

    *states, outputs = _C.trace_scan(list(states), [inputs], inputs.shape[0], reverse, body, plain=True)
    return outputs, tuple(states)
