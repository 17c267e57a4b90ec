"""User functions with their own backward: torch.autograd.Function."""

from __future__ import annotations

import functools
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import zeros
from sluice._base.grad_mode import no_grad


class FunctionCtx:
    """The context in which forward leaves things for backward: tensors by save_for_backward(), anything else as attributes."""

    def __init__(self) -> None:
        self._name = ""
        self._to_save: Any = ()
        self._saved: Any = None  # _C.SavedTensor, once forward has ended
        self._non_differentiable: Any = ()
        self._dirty: Any = ()
        self._materialize = True
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keeps arguments and results for backward, which finds them in `saved_tensors`; None stays None."""
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}")
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Accepts tensors that `jvp` would read, and does not keep them, since derivatives are never taken forward through
        a Function."""

    @property
    def saved_tensors(self) -> Any:
        if self._saved is None:
            return self._to_save
        return tuple(None if s is None else s.get(self._name) for s in self._saved)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """These results have no gradient; backward gets zeros for them."""
        self._non_differentiable = tuple(t._impl for t in tensors)

    def mark_dirty(self, *tensors: Tensor) -> None:
        """forward has written these arguments in place; it must return them."""
        self._dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """False: backward gets None, not zeros, for results that no gradient has come to."""
        self._materialize = value

    def _keep(self) -> None:
        self._saved = [None if t is None else _C.SavedTensor(t) for t in self._to_save]


class Function:
    """Subclass with static forward(ctx, *args) and backward(ctx, *grad_outputs); call by apply(*args).

    With a static setup_context(ctx, inputs, output), forward takes the arguments alone. `jvp` and `vmap` are not called:
    sluice.func differentiates backward twice instead, and sluice.func.vmap runs rows one by one.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use "
                                  "it with backward mode AD.")

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise NotImplementedError("To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
                                  "generate_vmap_rule=True.")

    generate_vmap_rule = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"Legacy autograd function with non-static forward method is deprecated: {type(self).__name__}; write "
                           "static methods and call by .apply()")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        apart = hasattr(cls, "setup_context")
        ctx = FunctionCtx()
        if apart or kwargs:  # in the order of the signature
            import inspect

            bound = inspect.signature(cls.forward).bind(*(() if apart else (ctx,)), *args, **kwargs)
            if apart:
                bound.apply_defaults()
            args, kwargs = bound.args[not apart:], bound.kwargs
        ctx._name = f"{cls.__name__}Backward"
        given, args = args, (*args, *kwargs.values())  # backward gives gradients for those by keyword, too
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        recording = _C.is_grad_enabled() and any(ctx.needs_input_grad)
        with no_grad():
            if apart:
                result = cls.forward(*given, **kwargs)
                cls.setup_context(ctx, given, result)
            else:
                result = cls.forward(ctx, *given, **kwargs)
        _check_dirty(cls, ctx, args, result, recording)
        if not recording:
            return result
        return _record(cls, ctx, args, result)


def _check_dirty(cls: Any, ctx: Any, args: Any, result: Any, recording: bool) -> None:
    given = {a._impl: a for a in args if isinstance(a, Tensor)}
    returned = {o._impl for o in (result if isinstance(result, tuple) else (result,)) if isinstance(o, Tensor)}
    for t in ctx._dirty:
        if t._impl not in given:
            raise RuntimeError(f"{cls.__name__}: mark_dirty: a tensor was modified in-place, but it is not an argument of forward")
        if t._impl not in returned:
            raise RuntimeError(f"{cls.__name__}: Some elements marked as dirty during the forward method were not returned as "
                               "output. The inputs that are modified inplace must all be outputs of the Function.")
        if recording and t.is_leaf and t.requires_grad:
            raise RuntimeError(f"{cls.__name__}: a leaf Variable that requires grad is being used in an in-place operation.")


def _record(cls: Any, ctx: Any, args: Any, result: Any) -> Any:
    outputs = list(result) if isinstance(result, tuple) else [result]
    tensors = [i for i, o in enumerate(outputs) if isinstance(o, Tensor)]
    taken = [i for i in tensors if outputs[i]._impl not in ctx._non_differentiable
             and (outputs[i].dtype.is_floating_point or outputs[i].dtype.is_complex)]
    likes = {i: (outputs[i].shape, outputs[i].dtype, None if outputs[i]._traced else outputs[i]._device) for i in tensors}
    places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    shapes = {i: (tuple(args[i].shape), args[i].dtype) for i in places}
    name, needs = ctx._name, ctx.needs_input_grad

    def run_backward(grads):
        given = [None] * len(outputs_of)
        for i, g in zip(taken, grads):
            given[i] = g
        if ctx._materialize:
            given = [_zeros(likes[i]) if g is None and i in likes else g for i, g in enumerate(given)]
        backward = cls.backward if cls.backward is not Function.backward else cls.vjp
        found = backward(ctx, *given)
        found = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(found) < len(needs) or any(g is not None for g in found[len(needs):]):
            raise RuntimeError(f"{cls.__name__}.backward: returned an incorrect number of gradients: returned {len(found)} gradients; "
                               f"forward took {len(needs)} arguments")
        return [_fitted(cls, i, g, *shapes[i]) for i, g in enumerate(found) if _belongs(cls, i, g, shapes)]

    impl_of = {o._impl: i for i, o in enumerate(outputs) if isinstance(o, Tensor)}
    ctx._keep()
    outputs_of = tuple(range(len(outputs)))
    before = [outputs[i] for i in taken]
    for i, made in zip(taken, _C.record_function(name, [args[i] for i in places], before, run_backward)):
        outputs[i] = made
    for saved, t in zip(ctx._saved, ctx._to_save):
        if t is not None and impl_of.get(t._impl) in taken and all(args[p]._impl != t._impl for p in places):
            saved.is_output(outputs[impl_of[t._impl]])
    ctx._to_save = ()
    for t in ctx._dirty:
        i = impl_of[t._impl]
        if i in taken:
            t._write(outputs[i])  # its own content, and with it the history
        outputs[i] = t
    return tuple(outputs) if isinstance(result, tuple) else outputs[0]


def _zeros(like: Any) -> Tensor:
    shape, dtype, device = like
    return zeros(shape, dtype=dtype, device=device)


def _belongs(cls: Any, i: int, grad: Any, shapes: Any) -> bool:
    if i not in shapes and grad is not None:
        raise RuntimeError(f"{cls.__name__}.backward: returned a gradient different from None at position {i}, but the corresponding "
                           "forward input was not a Variable")
    return i in shapes


def _fitted(cls: Any, i: int, grad: Any, shape: Any, dtype: Any) -> Any:
    """A gradient with the type of its argument: summed where that was broadcast."""
    if grad is None or not (dtype.is_floating_point or dtype.is_complex):
        return None
    if not isinstance(grad, Tensor):
        raise TypeError(f"{cls.__name__}.backward: expected Variable or None (got {type(grad).__name__} for gradient {i})")
    got = tuple(grad.shape)
    if got != shape:
        extra = len(got) - len(shape)
        if extra < 0 or any(s not in (1, g) for s, g in zip(shape, got[extra:])):
            raise RuntimeError(f"{cls.__name__}.backward: gradient {i} has shape {got}; the input has {shape}")
        summed = [d for d in range(len(got)) if d < extra or shape[d - extra] != got[d]]
        grad = grad.sum(summed, keepdim=True).reshape(shape)
    return grad if grad.dtype is dtype else grad.to(dtype)


class _Once(Function):
    """Identities whose gradients are an error."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(backward: Any) -> Any:
    """Marks a backward that is not itself differentiable: a second differentiation is an error."""
    @functools.wraps(backward)
    def wrapped(ctx, *grads):
        with no_grad():
            found = backward(ctx, *grads)
        if not (_C.is_grad_enabled() and any(isinstance(g, Tensor) and g.requires_grad for g in grads)):
            return found
        listed = list(found) if isinstance(found, (tuple, list)) else [found]
        places = [i for i, g in enumerate(listed) if isinstance(g, Tensor) and (g.dtype.is_floating_point or g.dtype.is_complex)]
        # A gradient that came in stands for everything the results were computed from.
        source = next(g for g in grads if isinstance(g, Tensor) and g.requires_grad)
        for i in places:
            listed[i] = _Once.apply(listed[i], source)[0]
        return tuple(listed)

    return wrapped
