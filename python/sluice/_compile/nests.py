"""Arguments of a compiled call: their tensors, and a key that says all else of them."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
from typing import Any, Iterator

from sluice import _C
from sluice._C import Generator, Tensor
from sluice.nn.modules.module import Module

from sluice._compile.breaks import Break
from sluice._base.parts import has_parts, is_dense
from sluice._base.size import Size

_BY_VALUE = (str, bytes, type(None), bool, int, complex, type(Ellipsis), range, enum.Enum, _C.dtype, Size)
_BY_IDENTITY = (Module, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type, types.ModuleType, Generator)
_TENSOR = ("tensor",)


class Arguments:
    """The arguments of a call. `tensors` are its leaves; `key` is equal for two calls that differ in their tensors only.

    `objects` are what the key names by identity: who keeps the key keeps them.
    """

    __slots__ = ("tensors", "key", "objects", "_nest")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.tensors: list[Tensor] = []
        self.objects: list[Any] = []
        self._nest = args, kwargs
        if not kwargs and all(type(a) is Tensor for a in args):
            self.tensors.extend(args)
            self.key: Any = len(args)
        else:
            places = tuple([self._walk(value, i) for i, value in enumerate(args)])  # in the order in which build() gives them back
            self.key = places, tuple([(name, self._walk(value, name)) for name, value in kwargs.items()])

    def _walk(self, value: Any, where: Any) -> Any:
        kind = value.__class__
        if is_dense(value):
            self.tensors.append(value)
            return _TENSOR
        if has_parts(value):
            parts, rest = value._to_parts()
            return type(value), rest, tuple([self._walk(t, where) for t in parts.values()])
        if kind is float:
            return kind, repr(value)  # NaN is itself, and -0.0 is not 0.0
        if isinstance(value, _BY_VALUE):
            return kind, value
        if kind in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
            return kind, tuple([self._walk(v, where) for v in value])
        if kind is dict or kind.__name__ == "OrderedDict":
            return kind, tuple([(k.__class__, k, self._walk(v, where)) for k, v in value.items()])
        if kind in (set, frozenset):
            return kind, frozenset((v.__class__, v) for v in value)
        if kind is slice:
            return kind, tuple(self._walk(v, where) for v in (value.start, value.stop, value.step))
        if isinstance(value, _BY_IDENTITY):
            self.objects.append(value)
            return kind, id(value)
        if dataclasses.is_dataclass(value):
            return kind, tuple([(f.name, self._walk(getattr(value, f.name), where)) for f in dataclasses.fields(value)])
        if kind.__module__.partition(".")[0] == "sluice" and kind.__hash__ is not None:
            return kind, value  # a device, a placement
        if hasattr(value, "__dict__"):  # what code reads of it is guarded by the environment
            self.objects.append(value)
            return kind, id(value)
        raise Break("argument", f"argument {where!r} is {kind.__module__}.{kind.__qualname__}; compiled calls take tensors, numbers, texts, "
                                "objects with attributes, and lists, tuples, dicts and dataclasses of them")

    def build(self, tensors: Iterator[Any]) -> tuple[Any, Any]:
        """(args, kwargs) with `tensors` in place of the tensors; lists and dicts in it are new ones."""
        args, kwargs = self._nest
        return tuple(_replaced(a, tensors) for a in args), {k: _replaced(v, tensors) for k, v in kwargs.items()}


def _replaced(value: Any, tensors: Iterator[Any]) -> Any:
    kind = value.__class__
    if is_dense(value):
        return next(tensors)
    if has_parts(value):
        parts, rest = value._to_parts()
        return type(value)._of_parts(rest, [next(tensors) for _ in parts])
    if kind in (tuple, list):
        return kind([_replaced(v, tensors) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[_replaced(v, tensors) for v in value])
    if kind is dict or kind.__name__ == "OrderedDict":
        return kind((k, _replaced(v, tensors)) for k, v in value.items())
    if dataclasses.is_dataclass(value) and not inspect.isclass(value):
        import copy

        made = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(made, field.name, _replaced(getattr(value, field.name), tensors))
        return made
    return value


def specs_of(tensors: list[Tensor]) -> Any:
    """The specs of all tensors, and which of these are the same tensor."""
    specs = tuple([(t.dtype, t._shape, t.is_contiguous() or t.stride(), t._device, t.requires_grad) for t in tensors])
    if len(tensors) > 1:
        impls = [t._impl for t in tensors]
        if len(set(impls)) != len(impls):
            return specs, tuple(impls.index(i) for i in impls)
    return specs


class Results:
    """The results of a call: a nest, whose tensors are numbered where they are first seen, and other objects."""

    def __init__(self, result: Any, where: str) -> None:
        self.tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}
        self.nest = self._walk(result, where)

    def _walk(self, value: Any, where: str) -> Any:
        kind = value.__class__
        if has_parts(value):
            parts, rest = value._to_parts()
            return _OfParts(type(value), rest), [self._walk(t, where) for t in parts.values()]
        if isinstance(value, Tensor):
            number = self._numbers.setdefault(id(value), len(self.tensors))
            if number == len(self.tensors):
                self.tensors.append(value)
            return "tensor", number
        if value is None or isinstance(value, (*_BY_VALUE, float, slice)) or isinstance(value, _BY_IDENTITY):
            return "constant", value
        if kind in (tuple, list) or (isinstance(value, tuple) and (hasattr(value, "_fields") or hasattr(value, "n_fields"))):
            return kind, [self._walk(v, where) for v in value]
        if isinstance(value, dict):
            try:
                kind((k, v) for k, v in value.items())
            except TypeError:
                raise Break("result", f"{where} returns a {kind.__qualname__}, which cannot be made again of its items") from None
            return kind, [(k, self._walk(v, where)) for k, v in value.items()]
        if dataclasses.is_dataclass(value):
            return _made_again(value), [(f.name, self._walk(getattr(value, f.name), where)) for f in dataclasses.fields(value)]
        raise Break("result", f"{where} returns {kind.__module__}.{kind.__qualname__}; compiled calls return tensors, numbers, texts, and "
                              "lists, tuples, dicts and dataclasses of them")

    def build(self, tensors: Any) -> Any:
        return _built(self.nest, tensors)


class _MadeAgain:
    def __init__(self, like: Any) -> None:
        self.like = like

    def __call__(self, fields: Any) -> Any:
        import copy

        made = copy.copy(self.like)
        for name, value in fields:
            object.__setattr__(made, name, value)
        return made


class _OfParts:
    def __init__(self, kind: Any, rest: Any) -> None:
        self.kind, self.rest = kind, rest

    def __call__(self, tensors: Any) -> Any:
        return self.kind._of_parts(self.rest, tensors)


def _made_again(value: Any) -> Any:
    import copy

    bare = copy.copy(value)
    for field in dataclasses.fields(value):
        object.__setattr__(bare, field.name, None)
    return _MadeAgain(bare)


def _built(nest: Any, tensors: Any) -> Any:
    kind, content = nest
    if kind == "tensor":
        return tensors[content]
    if kind == "constant":
        return content
    if kind is tuple or kind is list or isinstance(kind, _OfParts) or hasattr(kind, "n_fields"):  # the last: as of topk
        return kind([_built(c, tensors) for c in content])
    if isinstance(kind, _MadeAgain) or issubclass(kind, dict):
        return kind([(name, _built(c, tensors)) for name, c in content])
    return kind(*[_built(c, tensors) for c in content])

