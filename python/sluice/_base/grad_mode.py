"""Whether calls are recorded for gradients: torch.autograd.grad_mode."""

from __future__ import annotations

import functools
from typing import Any

from sluice import _C
from sluice._C import is_grad_enabled


class _GradMode:
    """Context manager and decorator that sets the gradient mode; of generators, wherever they run."""

    _mode = False

    def __enter__(self) -> Any:
        self._previous = [*getattr(self, "_previous", ()), is_grad_enabled()]
        _C.set_grad_enabled(self._mode)
        return self

    def __exit__(self, *exc: Any) -> None:
        _C.set_grad_enabled(self._previous.pop())

    def _again(self) -> Any:
        made = object.__new__(type(self))
        made._mode = self._mode
        return made

    def __call__(self, function: Any) -> Any:
        import inspect

        if inspect.isclass(function):
            raise TypeError(f"{type(self).__name__}: decorates functions: got the class {function.__name__}; decorate its methods")
        if inspect.isgeneratorfunction(function):
            return functools.wraps(function)(self._generator(function))

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with self._again():
                return function(*args, **kwargs)

        return wrapped

    def _generator(self, function: Any) -> Any:
        def wrapped(*args, **kwargs):
            with self._again():
                running = function(*args, **kwargs)
            send = functools.partial(next, running)
            while True:
                try:
                    with self._again():
                        made = send()
                except StopIteration as end:
                    return end.value
                try:
                    given = yield made
                    send = functools.partial(running.send, given)
                except GeneratorExit:
                    with self._again():
                        running.close()
                    raise
                except BaseException as error:  # thrown into this one, so into that one
                    send = functools.partial(running.throw, error)

        return wrapped


class no_grad(_GradMode):
    """Nothing inside is recorded for gradients. A context manager and a decorator, with or without ()."""

    def __new__(cls, function: Any = None) -> Any:
        self = super().__new__(cls)
        return self if function is None else self(function)


class enable_grad(no_grad):
    """Records inside no_grad."""

    _mode = True


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference_mode()."""
    return _C.is_inference_mode_enabled()


class inference_mode(_GradMode):
    """no_grad where `mode` is true, enable_grad where it is false. Tensors that are made inside are ordinary tensors."""

    def __new__(cls, mode: Any = True) -> Any:
        self = super().__new__(cls)
        self._mode = not mode
        return self(mode) if callable(mode) else self

    def __enter__(self) -> Any:
        self._inferring = [*getattr(self, "_inferring", ()), _C.is_inference_mode_enabled()]
        _C.set_inference_mode(not self._mode)
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        _C.set_inference_mode(self._inferring.pop())
        super().__exit__(*exc)


class set_grad_enabled(_GradMode):
    """Sets the mode at once; as a context manager also restores it, and as a decorator sets it for the function alone."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): mode is {type(mode).__name__}; must be bool")
        self._mode = mode
        self._before = is_grad_enabled()
        _C.set_grad_enabled(mode)

    def __enter__(self) -> Any:
        self._previous = [*getattr(self, "_previous", ()), self._before]
        _C.set_grad_enabled(self._mode)
        return self

    def __call__(self, function: Any) -> Any:
        _C.set_grad_enabled(self._before)
        return super().__call__(function)

    def _again(self) -> Any:
        made = _GradMode()
        made._mode = self._mode
        return made


class set_multithreading_enabled:
    """torch.autograd.set_multithreading_enabled(mode), a function and a context manager: means nothing here, where the backward pass
    runs on the calling thread and its kernels on the threads of the engine."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_multithreading_enabled(): mode must be a bool, not {type(mode).__name__}")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        return None
