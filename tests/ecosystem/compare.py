"""A model on both torches: the same state, the same inputs; results, gradients, and both as graphs."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Iterator

import numpy as np
import torch

import sluice as sl

STEPS = ("forward", "gradient", "graph", "training")  # what is asked of a model, in this order
UNTRIED = "not tried yet"  # what is found of a step that was not asked
RATE = 0.25
SIZES = ("grid_thw", "image_grid_thw", "video_grid_thw", "spatial_shapes")  # arguments that say shapes: constants of a graph, as ints are
# Of the largest value: what float32 may differ by, whose sums are in another order; in float64 what is beyond that must be right.
TOLERANCE = {"float32": 1e-3, "float64": 1e-6}


class Excluded(Exception):
    """A case that is not asked: torch's own model does not compute, say."""


def text_of(error: Exception) -> str:
    """The kind of an error and its first line."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:240]


class Slow(Exception):
    """A model that took more of the processors' time than it may."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def stop(*args: Any) -> None:
        raise Slow(f"took more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def tensors_of(value: Any) -> list[Any]:
    """The floating tensors of a result, in order: of lists, dicts, and objects of fields."""
    if hasattr(value, "is_floating_point") and hasattr(value, "dtype"):
        return [value] if value.dtype.is_floating_point else []
    if isinstance(value, Mapping):
        return [t for v in value.values() for t in tensors_of(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    if dataclasses.is_dataclass(value):
        return [t for f in dataclasses.fields(value) for t in tensors_of(getattr(value, f.name))]
    return []


def on(lib: Any, value: Any, dtype: str = "float32") -> Any:
    """Arrays as tensors of a library; floats in this dtype."""
    if isinstance(value, np.ndarray):
        made = (torch.from_numpy if lib is torch else sl.tensor)(value.copy())
        return made.to(getattr(lib, dtype)) if value.dtype.kind == "f" else made
    if isinstance(value, dict):
        return {key: on(lib, v, dtype) for key, v in value.items()}
    return type(value)(on(lib, v, dtype) for v in value) if isinstance(value, (list, tuple)) else value


def as_if_trained(model: Any) -> None:
    """Statistics of batch norms that are not those of a new one, so that it counts whether they are used."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 1.5)


def loss_of(lib: Any, outputs: Any) -> Any:
    """A number that each element of the results moves by another amount."""
    total = None
    for t in tensors_of(outputs):
        weights = np.cos(np.arange(t.numel(), dtype=np.float64)).reshape(tuple(t.shape)) / max(t.numel(), 1)
        part = (t * on(lib, weights, str(t.dtype).rpartition(".")[2])).sum()
        total = part if total is None else total + part
    return total


def differ(got: list[Any], expected: list[Any]) -> str:
    """How two lists of arrays differ; "" where they do not."""
    if [g.shape for g in got] != [e.shape for e in expected]:
        return f"shapes {[g.shape for g in got]}, torch's {[e.shape for e in expected]}"[:200]
    scale = max((np.abs(e[np.isfinite(e)]).max(initial=0) for e in expected), default=0)
    for i, (g, e) in enumerate(zip(got, expected)):
        tolerance = TOLERANCE[e.dtype.name] * (scale or 1)
        if not np.array_equal(np.isfinite(g), np.isfinite(e)):
            return f"value {i} is not finite where torch's is, or the other way about"
        worst = np.abs(np.where(np.isfinite(e), g - e, 0)).max(initial=0)
        if worst > tolerance:
            return f"value {i} differs by {worst / (scale or 1):.2g} of the largest"
    return ""


def arrays(values: Any) -> list[np.ndarray]:
    return [v.detach().numpy().copy() for v in tensors_of(values)]


def _parted(kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments that a graph is called with, and the constants that say shapes."""
    return {k: v for k, v in kwargs.items() if k not in SIZES}, {k: v for k, v in kwargs.items() if k in SIZES}


class _Compute(sl.nn.Graph):
    def __init__(self, model: Any, constants: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.constants = model, constants

    def build(self, args: Any, kwargs: Any) -> Any:
        return self.model(*args, **kwargs, **on(sl, self.constants))


class _Train(sl.nn.Graph):
    def __init__(self, model: Any, constants: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.constants = model, constants
        self.add_optimizer(sl.optim.SGD(model.parameters(), lr=RATE))

    def build(self, args: Any, kwargs: Any) -> Any:
        loss = loss_of(sl, self.model(*args, **kwargs, **on(sl, self.constants)))
        if loss is None or not loss.requires_grad:  # of codes, say, which nothing is learned from
            return sl.zeros(())
        loss.backward()
        return loss


def state_of(model: Any) -> Any:
    """The state of a model of torch's as arrays, with its versions."""
    state = model.state_dict()
    for key in list(state):
        state[key] = state[key].detach().numpy()
    return state


class Pair:
    """A model of both torches with one state; ours computes within `around`."""

    def __init__(self, ours: Callable[[], Any], theirs: Callable[[], Any], dtype: str, around: Callable[[], Any] = nullcontext) -> None:
        self.around, self.dtype, self._make = around, dtype, ours
        torch.manual_seed(0)
        self.theirs = theirs().eval().to(getattr(torch, dtype))
        as_if_trained(self.theirs)
        self.ours = self.new()

    def new(self) -> Any:
        """Ours with the state of torch's."""
        made = self._make().eval().to(getattr(sl, self.dtype))
        made.load_state_dict(state_of(self.theirs))
        return made

    def outputs(self, lib: Any, args: Any, kwargs: Any) -> Any:
        with lib.enable_grad():
            return (self.theirs if lib is torch else self.ours)(*on(lib, args, self.dtype), **on(lib, kwargs, self.dtype))

    def gradients(self, lib: Any, out: Any) -> list[np.ndarray]:
        """The gradient of each parameter."""
        loss = loss_of(lib, out)
        if loss is not None and loss.requires_grad:
            loss.backward()
        parameters = (self.theirs if lib is torch else self.ours).parameters()
        return [np.zeros(tuple(p.shape), self.dtype) if p.grad is None else p.grad.numpy().copy() for p in parameters]

    def check(self, args: Any, kwargs: Any, steps: Sequence[str]) -> dict[str, str]:
        """By step, what is wrong; "" where nothing is."""
        found, kept = dict.fromkeys(STEPS, UNTRIED), {}
        out = self.outputs(torch, args, kwargs)
        expected, gradients = arrays(out), self.gradients(torch, out) if {"gradient", "training"} & set(steps) else []

        def step(name: str, compute: Callable[[], str]) -> None:
            if name not in steps:
                return
            try:
                found[name] = compute()
            except Slow:
                raise
            except Exception as error:  # of any kind: it is what is told
                found[name] = text_of(error)

        def forward() -> str:  # one call gives results and gradients: some models keep what they have computed in their first
            kept["out"] = self.outputs(sl, args, kwargs)
            return differ(arrays(kept["out"]), expected)

        def graph() -> str:
            given, constants = _parted(kwargs)
            with sl.no_grad():
                computed = _Compute(self.ours, constants)(on(sl, args, self.dtype), on(sl, given, self.dtype))
                return differ(arrays(computed), expected)

        def training() -> str:  # of a new one: some keep parts of what they have computed, with the gradients' functions
            model = self.new()
            before = [p.detach().numpy().copy() for p in model.parameters()]
            given, constants = _parted(kwargs)
            _Train(model, constants)(on(sl, args, self.dtype), on(sl, given, self.dtype))
            moved = [(b - p.detach().numpy()) / RATE for b, p in zip(before, model.parameters())]
            coarse = max((np.abs(b).max(initial=0) for b in before), default=0) * 10 * np.finfo(self.dtype).eps  # what subtracting loses
            said = differ(moved, gradients)
            return said if said and max(np.abs(m - g).max(initial=0) for m, g in zip(moved, gradients)) > coarse else ""

        with self.around():
            step("forward", forward)
            step("gradient", lambda: differ(self.gradients(sl, kept.pop("out")), gradients) if "out" in kept else found["forward"])
            step("graph", graph)
            step("training", training)
        return found


def check(ours: Callable[[], Any], theirs: Callable[[], Any], args: Any, kwargs: Any = None, seconds: int = 240,
          around: Callable[[], Any] = nullcontext, steps: Sequence[str] = STEPS) -> dict[str, str]:
    """What is wrong with a model, by step. Where float32 is too coarse to tell, float64 says it."""
    with at_most(seconds):
        found = Pair(ours, theirs, "float32", around).check(args, kwargs or {}, steps)
        if coarse := [step for step, said in found.items() if "differs by" in said]:
            again = {"forward", *coarse} if "gradient" in coarse else coarse
            try:
                with_more = Pair(ours, theirs, "float64", around).check(args, kwargs or {}, again)
            except Slow:
                raise
            except Exception:  # torch's own has parts in float32: what is known stays
                return found
            found.update((step, with_more[step]) for step in coarse)
    return found
