"""backend="debug": each call runs as a plan and eagerly, and what differs is told by name."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._base.trace import tracing_lock
from sluice.nn.modules import _hooks

from sluice._compile.capture import compiling, Traced
from sluice._compile.nests import Results
from sluice._tensor.creation import get_rng_state, set_rng_state
from sluice._base.grad_mode import no_grad

RTOL, ATOL = 1e-3, 1e-5


class State:
    """The state that a call may write: buffers and parameters that its plan updates, arguments, the default generator."""

    def __init__(self, program: Any, tensors: list[Tensor]) -> None:
        named = dict(program.variables())
        updated = [named[name] for name, v in program.captured.variables().items() if v["updated"] and name in named]
        self._tensors = updated + [tensors[i] for i in program.written]
        self._content = [t.detach().clone() for t in self._tensors]
        self._generator = get_rng_state()

    def now(self) -> list[Tensor]:
        return [t.detach().clone() for t in self._tensors]

    def put_back(self) -> None:
        with no_grad():
            for t, content in zip(self._tensors, self._content):
                t.copy_(content)
        set_rng_state(self._generator)


def compared(region: Any, program: Any, fitted: Any) -> Any:
    """The result of the program, if the code itself gives the same; RuntimeError that names the first thing that differs."""
    with tracing_lock:
        state = State(program, fitted.tensors)
        made = program(fitted)
        ours, ours_after = [t.detach().clone() for t in Results(made, region.name).tensors], state.now()
        state.put_back()
        given = getattr(fitted, "given", fitted)
        args, kwargs = given.build(iter([t.detach().clone().requires_grad_(t.requires_grad) for t in given.tensors]))
        theirs = Results(region.run_plainly(*args, **kwargs), region.name).tensors
        state.put_back()
        made = program(fitted)  # with its own effects, and what draws random numbers draws them again
        if program.random:
            return made
        pairs = [(f"result {i}", a, b.detach()) for i, (a, b) in enumerate(zip(ours, theirs))]
        pairs += [(f"what it writes (tensor {i})", a, b) for i, (a, b) in enumerate(zip(ours_after, state.now()))]
        wrong = next((what for what in pairs if not _near(what[1], what[2])), None)
        if wrong is None:
            return made
        module = _first_module(region, program, given)
    what, a, b = wrong
    off = (a.double() - b.double()).abs().max().item() if a._shape == b._shape else "its shape"
    raise _C.RuntimeError(f"compile: backend='debug': '{region.name}': {what} of the plan differs from eager code by {off}; "
                          f"{f'the first module whose result differs is {module}' if module else 'it calls no module whose result differs'}")


def _near(a: Tensor, b: Tensor) -> bool:
    if a._shape != b._shape or a.dtype is not b.dtype:
        return False
    if not a.dtype.is_floating_point:
        return bool((a == b).all())
    return fn.allclose(a, b, rtol=RTOL, atol=ATOL, equal_nan=True)


class _Calls:
    """The results of all modules that are called inside, in order, as (name, tensor)."""

    def __init__(self, modules: Any) -> None:
        self._names = {id(m): f"{name or 'the whole'} ({type(m).__name__})" for m_name, module in modules.items()
                       for name, m in module.named_modules()}
        self.made: list[tuple[str, Tensor]] = []

    def _saw(self, module: Any, args: Any, result: Any) -> None:
        if id(module) in self._names and isinstance(result, Tensor):
            self.made.append((self._names[id(module)], result))

    def __enter__(self) -> _Calls:
        self._handle = _hooks.register_module_forward_hook(self._saw)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._handle.remove()


def _first_module(region: Any, program: Any, given: Any) -> str:
    modules = program.environment.modules
    if not modules:
        return ""
    with no_grad():
        state = State(program, program_tensors := given.tensors)
        theirs = _Calls(modules)
        with theirs:
            args, kwargs = given.build(iter([t.detach().clone() for t in program_tensors]))
            region.run_plainly(*args, **kwargs)
        eager = [(name, t.detach().clone()) for name, t in theirs.made]
        state.put_back()
        traced = _Calls(modules)

        def build(inputs: Any) -> Any:
            args, kwargs = given.build(iter(inputs))
            with traced, compiling():
                region.traced(*args, **kwargs)
            return [t for _, t in traced.made]

        graph = Traced(f"{region.name}_modules", program.reached, program.outer, build, program.environment)
        made = graph.planned(graph.traced(program_tensors), []).submit(program_tensors)
        found = next((name for (name, a), b in zip(eager, made) if not _near(b, a)), "")
        graph.synchronize()
        state.put_back()
    return found
