"""Gradients: torch.autograd."""

from __future__ import annotations

import functools
from typing import Any

from sluice import _C
from sluice._C import Tensor, is_grad_enabled as is_grad_enabled
from sluice.autograd.function import Function


def _listed(tensors: Any) -> Any:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads_for(tensors: Any, grads: Any, what: Any) -> Any:
    import sluice

    grads = [None] * len(tensors) if grads is None else _listed(grads)
    if len(grads) != len(tensors):
        raise RuntimeError(f"{what}: got {len(tensors)} tensors and {len(grads)} gradients; there must be one for each")
    filled = []
    for t, g in zip(tensors, grads):
        if g is None:
            if t.requires_grad and t.numel() != 1:
                raise RuntimeError(f"{what}: grad can be implicitly created only for scalar outputs: got shape {tuple(t.shape)}")
            g = sluice.ones(t.shape, dtype=t.dtype, device=None if t._traced else t._device)
        elif tuple(g.shape) != tuple(t.shape):
            raise RuntimeError(f"{what}: the gradient has shape {tuple(g.shape)}, its tensor {tuple(t.shape)}; they must be equal")
        filled.append(g)
    return filled


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: Any = None, create_graph: bool = False,
             inputs: Any = None) -> None:
    """Adds the gradients of `tensors` to `.grad` of the leaves (or of `inputs` alone)."""
    tensors = _listed(tensors)
    grads = _grads_for(tensors, grad_tensors, "backward")
    if inputs is None:
        _C.backward(tensors, grads, create_graph, retain_graph)
        return
    inputs = _listed(inputs)
    for leaf, g in zip(inputs, _C.grad(tensors, inputs, grads, create_graph, retain_graph, True)):
        if g is not None:
            leaf.grad = g if leaf.grad is None else leaf.grad + g


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: Any = None, create_graph: bool = False,
         allow_unused: Any = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> Any:
    """The gradients of `outputs` with respect to `inputs`, as a tuple."""
    import sluice

    if is_grads_batched:
        raise NotImplementedError("grad: is_grads_batched is not supported; call grad() once per row")
    outputs, inputs = _listed(outputs), _listed(inputs)
    grads = _grads_for(outputs, grad_outputs, "grad")
    result = _C.grad(outputs, inputs, grads, create_graph, retain_graph, bool(allow_unused or materialize_grads))
    if materialize_grads:
        result = [sluice.zeros_like(i) if g is None else g for i, g in zip(inputs, result)]
    return tuple(result)


class _GradMode:
    """Context manager and decorator that sets the gradient mode."""

    _mode = False

    def __enter__(self) -> Any:
        _C.push_grad_mode(self._mode)
        return self

    def __exit__(self, *exc: Any) -> None:
        _C.pop_grad_mode()

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with type(self).__new__(type(self))._with(self._mode):
                return function(*args, **kwargs)

        return wrapped

    def _with(self, mode: Any) -> Any:
        self._mode = mode
        return self


class no_grad(_GradMode):
    """Nothing inside is recorded for gradients."""

    def __new__(cls, function: Any = None) -> Any:
        self = super().__new__(cls)
        return self if function is None else self(function)


class enable_grad(no_grad):
    """Records inside no_grad."""

    _mode = True


class inference_mode(_GradMode):
    """As no_grad(mode)."""

    def __new__(cls, mode: bool = True) -> Any:
        self = super().__new__(cls)
        return self._with(False)(mode) if callable(mode) else self._with(is_grad_enabled() and not mode)


class set_grad_enabled(_GradMode):
    """Sets the mode at once; as a context manager also restores it."""

    def __init__(self, mode: Any) -> None:
        self._mode = mode
        _C.push_grad_mode(mode)

    def __enter__(self) -> Any:
        return self
