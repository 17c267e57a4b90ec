"""backward() and grad(), and what is to happen when they end."""

from __future__ import annotations

import threading
from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import ones, zeros_like
from sluice._base.trace import running
from sluice._base.grad_mode import no_grad


class _UnderWay(threading.local):
    ends = None  # what is called at the end of the innermost pass
    wants = False  # it is asked for gradients of given tensors
    retains = False  # what was saved is kept for another pass


_under_way = _UnderWay()


class _Pass:
    """While one is open, at_end() defers to its end."""

    def __init__(self, wants: bool, retains: bool) -> None:
        self._wants, self._retains = wants, retains

    def __enter__(self) -> Any:
        self._outer = (_under_way.ends, _under_way.wants, _under_way.retains)
        _under_way.ends, _under_way.wants, _under_way.retains = [], self._wants, self._retains

    def __exit__(self, kind: Any, *exc: Any) -> None:
        ends = _under_way.ends
        _under_way.ends, _under_way.wants, _under_way.retains = self._outer
        for end in ends:
            end(kind is None)


def at_end(done: Any) -> None:
    """Calls `done(succeeded)` at the end of the pass that runs the calling hook."""
    _under_way.ends.append(done)


def wants_inputs() -> bool:
    """The pass that runs the calling rule is asked for gradients of given tensors, not for .grad of all leaves."""
    return _under_way.wants


def retains_graph() -> bool:
    """The pass that runs the calling rule keeps what was saved, for another pass."""
    return _under_way.ends is None or _under_way.retains


def _listed(tensors: Any, where: str) -> Any:
    if isinstance(tensors, Tensor):
        return [tensors]
    tensors = list(tensors)
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"{where}: element {i} is {type(t).__name__}; must be a Tensor")
    return tensors


def _grads_for(tensors: Any, grads: Any, where: str, batched: bool = False) -> Any:
    if grads is None:
        grads = [None] * len(tensors)
    elif isinstance(grads, Tensor):
        grads = [grads]
    else:
        grads = list(grads)
    if len(grads) != len(tensors):
        raise RuntimeError(f"{where}: got {len(tensors)} tensors and {len(grads)} gradients; there must be one for each")
    filled = []
    for i, (t, g) in enumerate(zip(tensors, grads)):
        if g is None:
            if t.requires_grad and t.numel() != 1:
                raise RuntimeError(f"{where}: grad can be implicitly created only for scalar outputs: got shape {tuple(t.shape)}")
            if t.dtype.is_complex:
                raise RuntimeError(f"{where}: grad can be implicitly created only for real scalar outputs but got {t.dtype}")
            g = ones(t.shape, dtype=t.dtype, device=None if t._traced else t._device)
        elif not isinstance(g, Tensor):
            raise TypeError(f"{where}: gradients can be either Tensors or None, but got {type(g).__name__}")
        elif tuple(g.shape)[batched:] != tuple(t.shape):
            raise RuntimeError(f"{where}: Mismatch in shape: grad_output[{i}] has a shape of {tuple(g.shape)}, output[{i}] of "
                               f"{tuple(t.shape)}; the gradient has shape of its tensor{', and rows before' if batched else ''}")
        filled.append(g if g.dtype is t.dtype else g.to(t.dtype))
    return filled


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             grad_variables: Any = None, inputs: Any = None) -> None:
    """Adds the gradients of `tensors` to `.grad` of the leaves, or of `inputs` alone. torch.autograd.backward."""
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError("backward: `grad_tensors` and `grad_variables` (deprecated) are both given; pass grad_tensors")
        grad_tensors = grad_variables
    tensors = _listed(tensors, "backward")
    grads = _grads_for(tensors, grad_tensors, "backward")
    if running.now.scaling is not None:
        grads = running.now.scaling.begin(grads)
    with _Pass(inputs is not None, create_graph if retain_graph is None else bool(retain_graph)):
        if inputs is None:
            _C.backward(tensors, grads, create_graph, retain_graph)
            return
        inputs = _listed(inputs, "backward: inputs")
        if not inputs:
            raise RuntimeError("backward: `inputs` argument to `backward()` cannot be empty.")
        found = _C.grad(tensors, inputs, grads, create_graph, retain_graph, True)
    for leaf, g in zip(inputs, found):
        if g is not None:
            leaf.grad = g if leaf.grad is None else leaf.grad + g


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> Any:
    """The gradients of `outputs` with respect to `inputs`, as a tuple; as a dict where that is one. torch.autograd.grad.

    is_grads_batched: `grad_outputs` have one dim more in front; there is one pass for each of its rows.
    """
    if not only_inputs:
        raise RuntimeError("grad: only_inputs=False is not supported; use backward() to fill .grad of all leaves")
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    names = list(inputs) if isinstance(inputs, dict) else None
    inputs = inputs.values() if isinstance(inputs, dict) else inputs
    outputs, inputs = _listed(outputs, "grad: outputs"), _listed(inputs, "grad: inputs")
    if not inputs:
        raise RuntimeError("grad: `inputs` argument to `grad()` cannot be empty.")
    grads = _grads_for(outputs, grad_outputs, "grad", is_grads_batched)
    unused = bool(allow_unused or materialize_grads)
    if is_grads_batched:
        rows = {g.shape[0] if g.ndim else None for g in grads}
        if len(rows) != 1 or None in rows or 0 in rows:
            raise ValueError(f"grad: is_grads_batched: grad_outputs have {rows} rows; must have equally many, and one at least")
        per_row = [_run(outputs, inputs, [g[i] for g in grads], create_graph, True, unused) for i in range(rows.pop())]
        result = [None if column[0] is None else fn.stack(column) for column in zip(*per_row)]
    else:
        result = _run(outputs, inputs, grads, create_graph, retain_graph, unused)
    result = tuple(zeros_like(i) if g is None and materialize_grads else g for i, g in zip(inputs, result))
    return result if names is None else dict(zip(names, result))


def _run(outputs: Any, inputs: Any, grads: Any, create_graph: bool, retain_graph: Any, unused: bool) -> Any:
    with _Pass(True, create_graph if retain_graph is None else bool(retain_graph)):
        return _C.grad(outputs, inputs, grads, create_graph, retain_graph, unused)


def clear_grad(p: Any, set_to_none: bool = True) -> None:
    """Forgets the gradient of a parameter, or makes it zeros."""
    if p.grad is None:
        return
    if set_to_none:
        p.grad = None
    else:
        with no_grad():
            p.grad.zero_()
