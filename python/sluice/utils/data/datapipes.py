"""Data pipes: datasets that are chained by methods which users register."""

from __future__ import annotations

import functools
from typing import Any, Callable, ClassVar, TypeVar

from sluice.errors import TypeError, ValueError  # noqa: A004
from sluice.utils.data.dataset import Dataset, IterableDataset

T_co = TypeVar("T_co", covariant=True)

_deterministic = False


class _Chained:
    """Methods by functional_datapipe, which make the pipe that comes next."""

    functions: ClassVar[dict[str, Callable]]

    def __getattr__(self, name: str) -> Any:
        function = type(self).functions.get(name)
        if function is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(function, self)

    @classmethod
    def register_function(cls, function_name: str, function: Callable) -> None:
        """Adds `function(pipe, ...)` as a method of all pipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: type,
                                      enable_df_api_tracing: bool = False) -> None:
        if function_name in cls.functions:
            raise ValueError(f"functional_datapipe: Unable to add DataPipe function name {function_name} as it is already "
                             f"taken by {cls.functions[function_name]!r}")
        cls.functions[function_name] = cls_to_register


class IterDataPipe(_Chained, IterableDataset[T_co]):
    """An IterableDataset with registered methods; torch.utils.data.IterDataPipe. It may be iterated several times at once."""

    functions: ClassVar[dict[str, Callable]] = {}


class MapDataPipe(_Chained, Dataset[T_co]):
    """A Dataset with registered methods; torch.utils.data.MapDataPipe."""

    functions: ClassVar[dict[str, Callable]] = {}


class functional_datapipe:  # noqa: N801  # torch's name
    """Decorator of a pipe: `pipe.name(...)` makes one of it, with `pipe` as its first argument."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: Any) -> Any:
        kind = cls.cls if isinstance(cls, non_deterministic) else cls
        if not isinstance(kind, type) or not issubclass(kind, _Chained):
            raise TypeError(f"functional_datapipe: can only decorate IterDataPipe or MapDataPipe: got {cls!r}")
        base: Any = IterDataPipe if issubclass(kind, IterDataPipe) else MapDataPipe
        base.register_datapipe_as_function(self.name, cls)
        return cls


class guaranteed_datapipes_determinism:  # noqa: N801  # torch's name
    """Context manager: within, pipes that are marked as non-deterministic are refused."""

    def __init__(self) -> None:
        global _deterministic
        self.prev, _deterministic = _deterministic, True

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        global _deterministic
        _deterministic = self.prev


class non_deterministic:  # noqa: N801  # torch's name
    """Decorator of an IterDataPipe, which guaranteed_datapipes_determinism refuses.

    With a function, `@non_deterministic(f)`, those are refused for whose arguments f(...) is true.
    """

    cls: Any = None
    deterministic_fn: Any = None

    def __init__(self, arg: Any) -> None:
        if isinstance(arg, type):
            if not issubclass(arg, IterDataPipe):
                raise TypeError(f"non_deterministic: only IterDataPipe can be decorated, but {arg.__name__} is found")
            self.cls = arg
        elif callable(arg):
            self.deterministic_fn = arg
        else:
            raise TypeError(f"non_deterministic: got {arg!r}; expected an IterDataPipe or a function of its arguments")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is None:
            if len(args) != 1 or kwargs or not isinstance(args[0], type) or not issubclass(args[0], IterDataPipe):
                raise TypeError(f"non_deterministic: only IterDataPipe can be decorated: got {args!r:.100}")
            made = type(self)(args[0])
            made.deterministic_fn = self.deterministic_fn
            return made
        if _deterministic and (self.deterministic_fn is None or self.deterministic_fn(*args, **kwargs)):
            raise TypeError(f"{self.cls.__name__} is non-deterministic, but you set 'guaranteed_datapipes_determinism'; leave "
                            f"the pipe out, or make it outside of that")
        return self.cls(*args, **kwargs)
