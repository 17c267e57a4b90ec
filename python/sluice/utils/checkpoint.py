"""Memory for time: activations that are computed again for the backward pass. torch.utils.checkpoint."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from typing import Any, Callable

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import default_generator
from sluice._base.trace import checkpoint_scope
from sluice.autograd import passes
from sluice.autograd.function import Function
from sluice._base.grad_mode import enable_grad
from sluice.autograd.graph import saved_tensors_hooks

__all__ = ["CheckpointError", "CheckpointFunction", "check_backward_validity", "checkpoint", "checkpoint_sequential",
           "detach_variable", "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled",
           "set_checkpoint_early_stop",
           "set_device_states"]


class CheckpointError(RuntimeError):
    """A value that was computed again is not the one that was computed first."""


def noop_context_fn() -> Any:
    return contextlib.nullcontext(), contextlib.nullcontext()


class _Setting:
    """A context that sets one of the module's switches."""

    name = ""

    def __init__(self, value: bool | None) -> None:
        self._value = value

    def __enter__(self) -> None:
        self._before = _settings[self.name]
        _settings[self.name] = self._value

    def __exit__(self, *exc: Any) -> None:
        _settings[self.name] = self._before


_settings: dict[str, bool | None] = {"debug": None, "early_stop": None}


class set_checkpoint_debug_enabled(_Setting):
    """Inside, checkpoint() has debug as given here; None leaves it to the calls."""

    name = "debug"


class set_checkpoint_early_stop(_Setting):
    """Inside, checkpoint() computes again all that the function does where this is False."""

    name = "early_stop"


class _Random:
    """The states of the default generator, of now and for a while."""

    def __init__(self, preserve: bool) -> None:
        self._generator = default_generator
        self._state = self._generator.get_state() if preserve else None

    @contextlib.contextmanager
    def again(self) -> Any:
        if self._state is None:
            yield
            return
        now = self._generator.get_state()
        self._generator.set_state(self._state)
        try:
            yield
        finally:
            self._generator.set_state(now)


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
               context_fn: Callable[[], Any] = noop_context_fn, determinism_check: str = "default", debug: bool = False,
               early_stop: bool = True, policy: str | None = None, **kwargs: Any) -> Any:
    """function(*args, **kwargs), whose intermediate results are not kept for the backward pass but computed again by it.

    use_reentrant=False, the default: works with grad() and keyword arguments, and stops computing as soon as it has what
    the pass reads. True: a backward pass inside the backward pass; one argument at least must require gradients.
    preserve_rng_state=False: random numbers may differ the second time. determinism_check: "default" compares shapes and
    dtypes of what is computed again, "none" nothing. A function that computes something else raises CheckpointError, with
    `debug` naming both.

    In a graph the function is traced once, and the compiler's pass `recompute` computes again what the backward pass reads.
    policy: what is kept there all the same, by JAX's names: "nothing_saveable", the default; "dots_saveable": products of matrices and
    convolutions, so that only what is quick is computed again; "dots_with_no_batch_dims_saveable": of these, no products of many
    matrices by as many, as in attention; "everything_saveable". Eager calls know no other than the first.
    """
    if policy is not None and not _C.is_tracing():
        _C.checkpoint_policy(policy)
        if policy != "nothing_saveable":
            raise NotImplementedError(f"checkpoint: policy '{policy}' outside of a graph; eager calls keep nothing: leave it out, or call it "
                                      "in nn.Graph.build")
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs and use_reentrant:
        raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}; use_reentrant=True takes positional ones alone")
    if determinism_check not in ("default", "none"):
        raise ValueError(f"checkpoint: determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    if use_reentrant and (context_fn is not noop_context_fn or debug):
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if _C.is_tracing():
        with checkpoint_scope(policy or "nothing_saveable"):  # the compiler's pass `recompute` does the rest
            return function(*args, **kwargs)
    if use_reentrant:
        return CheckpointFunction.apply(function, preserve, *args)
    forward_context, again_context = context_fn()
    if not _C.is_grad_enabled():
        with forward_context:
            return function(*args, **kwargs)
    chosen = _settings["debug"]
    stop = _settings["early_stop"]
    region = _Region(function, args, kwargs, preserve, again_context, determinism_check == "default",
                     debug if chosen is None else chosen, early_stop if stop is None else stop)
    with saved_tensors_hooks(region.pack, _unpack), forward_context:
        return function(*args, **kwargs)


class _Stop(Exception):
    """All that the backward pass may read is there."""


class _Held:
    """In place of a saved tensor: the number of it in its region."""

    __slots__ = ("region", "index", "__weakref__")

    def __init__(self, region: Any, index: int) -> None:
        self.region, self.index = region, index


def _unpack(held: _Held) -> Tensor:
    return held.region.tensor(held.index)


class _Region:
    """One call of checkpoint(): how to do it again, and what it saved.

    Arguments are saved as any tensor is, so what encloses this region decides how.
    """

    def __init__(self, function: Any, args: Any, kwargs: Any, preserve: bool, context: Any, check: bool, debug: bool,
                 early_stop: bool) -> None:
        self._function, self._context, self._check, self._debug, self._stop = function, context, check, debug, early_stop
        self._args = [_C.SavedTensor(a) if isinstance(a, Tensor) else a for a in args]
        self._kwargs = {k: _C.SavedTensor(v) if isinstance(v, Tensor) else v for k, v in kwargs.items()}
        self._random = _Random(preserve)
        self._types: list[str] = []  # of what was saved
        self._held: list[Any] = []  # weak: what the tape has dropped need not be kept when it is computed again
        self._again: dict[int, Tensor] | None = None

    def pack(self, t: Tensor) -> _Held:
        held = _Held(self, len(self._types))
        self._types.append(_type(t))
        self._held.append(weakref.ref(held))
        return held

    def tensor(self, index: int) -> Tensor:
        if self._again is None or index not in self._again:
            self._compute()
            passes.at_end(lambda succeeded: self._forget())
        return self._again.pop(index)

    def _forget(self) -> None:
        self._again = None

    def _compute(self) -> None:
        types: list[str] = []
        found: dict[int, Tensor] = {}

        def keep(t: Tensor) -> Tensor:
            index = len(types)
            types.append(_type(t))
            if index < len(self._held) and self._held[index]() is not None:
                found[index] = t.detach()
            if self._stop and len(types) == len(self._types):
                raise _Stop
            return t

        args = [a.get("checkpoint") if isinstance(a, _C.SavedTensor) else a for a in self._args]
        kwargs = {k: v.get("checkpoint") if isinstance(v, _C.SavedTensor) else v for k, v in self._kwargs.items()}
        try:
            with self._random.again(), enable_grad(), saved_tensors_hooks(keep, lambda t: t), self._context:
                self._function(*args, **kwargs)
        except _Stop:
            pass
        self._compare(types)
        self._again = found

    def _compare(self, types: list[str]) -> None:
        if len(types) != len(self._types):
            raise CheckpointError("checkpoint: A different number of tensors was saved during the original forward and recomputation: "
                                  f"{len(self._types)} and {len(types)}; the function must do the same twice" + self._both(types))
        different = [i for i, (a, b) in enumerate(zip(self._types, types)) if a != b]
        if self._check and different:
            i = different[0]
            raise CheckpointError("checkpoint: Recomputed values for the following tensors have different metadata than during the "
                                  f"forward pass: tensor {i}: saved {self._types[i]}, recomputed {types[i]}" + self._both(types))

    def _both(self, types: list[str]) -> str:
        return f"\n  saved: {self._types}\n  recomputed: {types}" if self._debug else ""


def _type(t: Tensor) -> str:
    return f"{t.dtype.name}{list(t.shape)} on {t._device}"


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors among `inputs` without history, requiring gradients as before."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(a.detach().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in inputs)


def check_backward_validity(inputs: Any) -> None:
    """Warns when no tensor among `inputs` requires gradients."""
    if not any(a.requires_grad for a in inputs if isinstance(a, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class CheckpointFunction(Function):
    """checkpoint() with use_reentrant=True: apply(function, preserve_rng_state, *args)."""

    @staticmethod
    def forward(ctx: Any, function: Any, preserve: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.function, ctx.random = function, _Random(preserve)
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if passes.wants_inputs():
            raise RuntimeError("When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                               "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
                               ".backward() without passing the `inputs` argument.")
        args = list(ctx.args)
        for i, t in zip(ctx.places, ctx.saved_tensors):
            args[i] = t
        args = detach_variable(tuple(args))
        with ctx.random.again(), enable_grad():
            made = ctx.function(*args)
        made = made if isinstance(made, tuple) else (made,)
        taken = [(o, g) for o, g in zip(made, grads) if isinstance(o, Tensor) and o.requires_grad and g is not None]
        if not taken:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        passes.backward(*zip(*taken))
        return (None, None, *(a.grad if isinstance(a, Tensor) else None for a in args))


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """The modules of `functions` one after another, as `segments` calls of checkpoint(); the last is none."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if not 1 <= segments <= len(functions):
        raise ValueError(f"checkpoint_sequential: segments is {segments}; must be from 1 to the number of functions, {len(functions)}")
    size = len(functions) // segments

    def run(part: Any) -> Any:
        def forward(value: Any) -> Any:
            for f in part:
                value = f(value)
            return value

        return forward

    for i in range(segments - 1):
        input = checkpoint(run(functions[i * size:(i + 1) * size]), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return run(functions[(segments - 1) * size:])(input)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The GPUs that tensors among `args` are on, with the states of their generators: none, since one generator draws for all devices."""
    return [], []


def set_device_states(devices: Any, states: Any, *, device_type: str | None = None) -> None:
    """Sets what get_device_states() gave; devices have no generators of their own, so neither must name one."""
    if list(devices) or list(states):
        raise ValueError(f"set_device_states: devices are {list(devices)}; one generator draws for all devices: use "
                         "sluice.set_rng_state")


def __getattr__(name: str) -> Any:
    from sluice._names.left_out import missing

    raise missing("sluice.utils.checkpoint", name)
