"""Guards tell what a compiled call depends on besides its code: the key of a call, in words, and what differs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any, Iterator

from sluice import _C
from sluice._base.precision import precisions, _settings

from sluice._compile.breaks import Break
from sluice._compile.nests import specs_of


class _Disabled(threading.local):
    depth = 0


_disabled = _Disabled()


def is_disabled() -> bool:
    return _disabled.depth > 0


class disabled:
    """On this thread, compiled code runs eagerly inside."""

    def __enter__(self) -> None:
        _disabled.depth += 1

    def __exit__(self, *exc: Any) -> None:
        _disabled.depth -= 1


def _flags() -> tuple[Any, ...]:
    return (*_C.call_flags(), tuple(precisions().values()))


_FLAGS = ("grad mode", "inference mode", "default dtype", "autocast", "default device", "float32 precision")


@contextmanager
def flags_kept() -> Iterator[None]:
    """Raises where the flags were changed inside, which a plan would do once only, and puts them back."""
    before = _flags()
    try:
        yield
    finally:
        now = _flags()
        if now != before:
            grad, inference, dtype, _, device, _ = before
            _C.set_grad_enabled(grad)
            _C.set_inference_mode(inference)
            _C.set_default_dtype(dtype)
            _C.set_default_device(device)
            _settings.update(zip(_settings, before[-1]))
    for name, then, after in zip(_FLAGS, before, now):
        if then != after:
            raise Break("effect", f"it changes the {name} from {then} to {after}, which a plan would do once only")


def key_of(arguments: Any, modules: list[Any]) -> Any:
    return arguments.key, specs_of(arguments.tensors), _flags(), tuple([m.training for m in modules])


def identities(modules: list[Any]) -> list[Any]:
    """(dict, key) of what key_of() says besides arguments and flags of the thread."""
    return [(_settings, name) for name in _settings] + [(vars(m), "training") for m in modules]


def _spec(spec: Any) -> str:
    dtype, shape, contiguous, device, grad = spec
    strides = "" if contiguous is True else f", strides {tuple(contiguous)}"
    return f"{dtype.name}{tuple(shape)} on {device}{strides}" + (", requires grad" if grad else "")


def described(program: Any) -> list[str]:
    """The guards of a program."""
    (_, specs, flags, modes) = program.key
    text = [f"tensor {i} is {_spec(s)}" for i, s in enumerate(_flat(specs))]
    if not isinstance(program.key[0], int):
        text.append("arguments that are no tensors, and how they are nested")
    text += [f"{name} is {value}" for name, value in zip(_FLAGS, flags)]
    if modes:
        text.append(f"{sum(modes)} of {len(modes)} modules are in training mode")
    text += [f"{what} has the memory and requires_grad that it had" for what, *_ in program.watched_memory()]
    return text + program.environment.guards()


def difference(last: Any, now: Any, programs: list[Any]) -> str:
    """In words, the first thing in which a call differs from the last one that was compiled."""
    for program in programs:
        changed = program.changed()
        if changed is not None:
            return f"{changed} is not as it was"
    (args, specs, flags, modes), _ = last
    (args_now, specs_now, flags_now, modes_now), _ = now
    for i, (a, b) in enumerate(zip(_flat(specs), _flat(specs_now))):
        if a != b:
            return f"tensor {i} is {_spec(b)}; compiled was {_spec(a)}"
    if len(_flat(specs)) != len(_flat(specs_now)):
        return f"{len(_flat(specs_now))} tensors were given; compiled were {len(_flat(specs))}"
    for name, a, b in zip(_FLAGS, flags, flags_now):
        if a != b:
            return f"{name} is {b}; compiled was {a}"
    if modes != modes_now:
        return "the mode (train or eval) of a module"
    if args != args_now:
        return f"an argument that is no tensor, or how arguments are nested: {_first_difference(args, args_now)}"
    return "which arguments are the same tensor"


def _flat(specs: Any) -> Any:
    return specs[0] if len(specs) == 2 and specs[0] and isinstance(specs[0][0], tuple) else specs


def _first_difference(a: Any, b: Any) -> str:
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        for x, y in zip(a, b):
            if x != y:
                return _first_difference(x, y)
    return f"{b!r}; compiled was {a!r}"[:200]
