"""User functions with their own backward: torch.autograd.Function."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor


class FunctionCtx:
    """What forward leaves for backward."""

    def __init__(self) -> None:
        self._saved = ()
        self._non_differentiable = ()
        self._materialize = True
        self.needs_input_grad = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self._saved = tensors

    @property
    def saved_tensors(self) -> Any:
        return self._saved

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self._non_differentiable = tuple(t._impl for t in tensors)

    def mark_dirty(self, *tensors: Any) -> Any:
        raise NotImplementedError("Function: mark_dirty is not supported; return a new tensor instead of writing in place")

    def set_materialize_grads(self, value: Any) -> None:
        self._materialize = value


class Function:
    """Subclass with static forward(ctx, *args) and backward(ctx, *grad_outputs); call by apply(*args)."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        raise NotImplementedError("Function: forward() must be defined")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError("Function: backward() must be defined to differentiate through it")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        import sluice

        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        with sluice.no_grad():
            if hasattr(cls, "setup_context"):
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args)
        if not (_C.is_grad_enabled() and any(ctx.needs_input_grad)):
            return result
        outputs = result if isinstance(result, tuple) else (result,)
        taken = [i for i, o in enumerate(outputs) if isinstance(o, Tensor) and o._impl not in ctx._non_differentiable]
        shapes = [(outputs[i].shape, outputs[i].dtype) for i in taken]
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]

        def run_backward(grads):
            given = [None] * len(outputs)
            for i, g, (shape, dtype) in zip(taken, grads, shapes):
                given[i] = sluice.zeros(shape, dtype=dtype) if g is None and ctx._materialize else g
            found = cls.backward(ctx, *given)
            found = found if isinstance(found, tuple) else (found,)
            if len(found) < len(args) or any(g is not None for g in found[len(args):]):
                raise RuntimeError(f"{cls.__name__}.backward: returned {len(found)} gradients; forward took {len(args)} arguments")
            for i in places:
                if found[i] is not None and tuple(found[i].shape) != tuple(args[i].shape):
                    raise RuntimeError(f"{cls.__name__}.backward: gradient {i} has shape {tuple(found[i].shape)}; the input has "
                                       f"{tuple(args[i].shape)}")
            return [found[i] for i in places]

        recorded = list(outputs)
        for i, o in zip(taken, _C.record_function(f"{cls.__name__}Backward", [args[i] for i in places],
                                                  [outputs[i] for i in taken], run_backward)):
            recorded[i] = o
        return tuple(recorded) if isinstance(result, tuple) else recorded[0]


def once_differentiable(backward: Any) -> Any:
    """Marks a backward that is not itself differentiable."""
    import functools

    import sluice

    @functools.wraps(backward)
    def wrapped(ctx, *grads):
        with sluice.no_grad():
            return backward(ctx, *grads)

    return wrapped
