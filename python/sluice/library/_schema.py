"""Signatures of custom ops: read from annotations, or from torch's schema notation, and held against arguments."""

from __future__ import annotations

import collections.abc
import inspect
import re
import types
import typing
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Optional

from sluice import _C
from sluice._C import Tensor

_NONE = type(None)
_SCALARS: dict[Any, str] = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", _C.dtype: "ScalarType"}
_RETURNS = ("Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$")
_required = object()


@dataclass(frozen=True)
class Argument:
    name: str
    type: str  # as in a schema, with SymInt for int: "Tensor?", "SymInt[]"
    default: Any = _required
    kw_only: bool = False
    mutated: bool = False

    @property
    def is_tensors(self) -> bool:
        return self.type.startswith("Tensor")


@dataclass(frozen=True)
class Schema:
    """The arguments and results of a call. `str()` of it is torch's notation, which parse() reads."""

    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    returns_tuple: bool = False  # also where there is one

    def __str__(self) -> str:
        parts: list[str] = []
        for i, a in enumerate(self.arguments):
            if a.kw_only and (i == 0 or not self.arguments[i - 1].kw_only):
                parts.append("*")
            kind = a.type.replace("Tensor", f"Tensor(a{i}!)", 1) if a.mutated else a.type
            parts.append(f"{kind} {a.name}" + ("" if a.default is _required else f"={_literal(a.default)}"))
        single = len(self.returns) == 1 and not self.returns_tuple
        return f"({', '.join(parts)}) -> {self.returns[0] if single else '(' + ', '.join(self.returns) + ')'}"

    @property
    def mutates(self) -> bool:
        return any(a.mutated for a in self.arguments)

    @property
    def has_kw_only(self) -> bool:
        return any(a.kw_only for a in self.arguments)

    def bind(self, name: str, args: Any, kwargs: Any) -> list[Any]:
        """A value for each argument, in their order. RuntimeError as torch's where the call does not fit."""
        declaration = f"Declaration: {name}{self}"
        positional = [a for a in self.arguments if not a.kw_only]
        if len(args) > len(positional):
            raise _C.RuntimeError(f"{name}() expected at most {len(positional)} argument(s) but received {len(args)} "
                                  f"argument(s). "
                               f"{declaration}")
        given = {a.name: value for a, value in zip(positional, args)}
        for key, value in kwargs.items():
            if all(a.name != key for a in self.arguments):
                raise _C.RuntimeError(f"Unknown keyword argument '{key}' for operator '{name}'. Schema: {name}{self}")
            if key in given:
                raise _C.RuntimeError(f"{name}() got multiple values for argument '{key}'. {declaration}")
            given[key] = value
        values = []
        for i, a in enumerate(self.arguments):
            if a.name not in given and a.default is _required:
                raise _C.RuntimeError(f"{name}() is missing value for argument '{a.name}'. {declaration}")
            value = given.get(a.name, a.default)
            if a.name in given and not _fits(a.type, value):
                raise _C.RuntimeError(f"{name}() Expected a value of type '{a.type.replace('SymInt', 'int')}' for argument "
                                      f"'{a.name}' but "
                                   f"instead found type '{type(value).__name__}'.\nPosition: {i}\nValue: "
                                   f"{value!r:.200}\n{declaration}")
            values.append(_converted(a.type, value))
        return values


def _fits(kind: str, value: Any) -> bool:
    if kind.endswith("[]?") or (kind.endswith("?") and not kind.endswith("[]")):
        return value is None or _fits(kind[:-1], value)
    if kind.endswith("[]"):
        return isinstance(value, (tuple, list)) and all(_fits(kind[:-2], v) for v in value)
    if kind == "Tensor?":
        return value is None or isinstance(value, Tensor)
    if kind == "Device":
        return isinstance(value, str) or type(value).__name__ == "device"
    if kind == "SymInt":
        return isinstance(value, int)
    if kind in ("float", "Scalar"):
        return isinstance(value, (int, float))
    return isinstance(value, {"Tensor": Tensor, "bool": bool, "str": str, "ScalarType": _C.dtype}[kind])


def _converted(kind: str, value: Any) -> Any:
    """As a function of this signature gets it: floats are floats, sequences lists."""
    if isinstance(value, (tuple, list)):
        return [_converted(kind, v) for v in value]
    return float(value) if kind.startswith("float") and value is not None else value


def _literal(value: Any) -> str:
    if isinstance(value, _C.dtype):
        return value.name
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return f'"{value}"' if isinstance(value, str) or type(value).__name__ == "device" else str(value)


# From annotations


def _kind(annotation: Any) -> Optional[str]:
    """The schema's word for an annotation, None: there is none."""
    from sluice._base.device import device

    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if annotation is device:
        return "Device"
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union or origin is getattr(types, "UnionType", None):
        if set(inner) == {int, float, bool}:
            return "Scalar"
        rest = tuple(t for t in inner if t is not _NONE)
        if len(rest) == len(inner):
            return None
        kind = _kind(rest[0] if len(rest) == 1 else typing.Union[rest])
        return None if kind is None or kind.endswith("?") else kind + "?"
    if origin in (list, collections.abc.Sequence) and len(inner) == 1:
        kind = _kind(inner[0])
        return None if kind is None or "[]" in kind or (kind.endswith("?") and kind != "Tensor?") else kind + "[]"
    return None


def infer(function: Callable[..., Any], mutates_args: Any) -> Schema:
    """The schema of a function whose parameters and results are annotated; ValueError says what is not."""
    signature = inspect.signature(function)

    def wrong(text: str) -> Any:
        return _C.ValueError(f"infer_schema(func): {text} Got func with signature {signature}")

    try:
        hints = typing.get_type_hints(function)
    except NameError as error:
        raise wrong(f"An annotation cannot be read: {error}.") from None
    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise _C.ValueError("mutates_args must either be a sequence of the names of the arguments that are mutated or the "
                            "string 'unknown'.")
    mutated = None if mutates_args == "unknown" else set(mutates_args)
    absent = (mutated or set()) - set(signature.parameters)
    if absent:
        raise wrong(f"{absent} in mutates_args were not found in the custom op's signature. mutates_args names the arguments "
                    f"that the op "
                    "writes to, or is 'unknown'.")
    arguments = []
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise wrong("We do not support positional-only args, varargs, or varkwargs.")
        if name not in hints:
            raise wrong(f"Parameter {name} must have a type annotation.")
        kind = _kind(hints[name])
        if kind is None:
            raise wrong(f"Parameter {name} has unsupported type {hints[name]}. The valid types are Tensor, int, float, bool, "
                        f"str, dtype, "
                        "device, Union[int, float, bool], and Optional or Sequence of these.")
        default = _required if parameter.default is parameter.empty else parameter.default
        if default is not _required and not isinstance(default, (int, float, bool, str, _NONE, _C.dtype)):
            raise wrong(f"Parameter {name} has an unsupported default value type {type(default)}; a default is a number, a "
                        f"text, a dtype "
                        "or None.")
        is_mutated = name in mutated if mutated is not None else kind.startswith("Tensor")
        if is_mutated and not kind.startswith("Tensor"):
            raise wrong(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated.")
        arguments.append(Argument(name, kind, default, parameter.kind is parameter.KEYWORD_ONLY, is_mutated))
    if "return" not in hints:
        raise wrong("No return type annotation was provided. Please add one.")
    result = hints["return"]
    if result is _NONE:
        return Schema(tuple(arguments), ())
    several = typing.get_origin(result) is tuple
    kinds = [_kind(t) for t in (typing.get_args(result) if several else (result,))]
    if any(kind not in _RETURNS for kind in kinds):
        raise wrong(f"Return has unsupported type {result}. The valid types are Tensor, List[Tensor], int, float, bool, "
                    f"tuples of these, "
                    "and None.")
    return Schema(tuple(arguments), tuple(k for k in kinds if k is not None), several)


# From schema notation


def parse(text: str, mutates_args: Optional[Iterable[str]] = None) -> Schema:
    """Parses "(Tensor x, int n=1, *, bool flag=False) -> Tensor"; ValueError says what cannot be read."""
    found = re.fullmatch(r"\s*\((.*)\)\s*->\s*(.+?)\s*", text, re.S)
    if found is None:
        raise _C.ValueError(f"schema: got {text!r}; must be like '(Tensor x, int n=1) -> Tensor'")
    arguments, kw_only = [], False
    for part in _split(found[1]):
        if part == "*":
            kw_only = True
            continue
        declared = re.fullmatch(r"([\w?\[\]]+?)(\([\w!| >-]*\))?([?\[\]\d]*)\s+(\w+)(?:\s*=\s*(.+))?", part)
        if declared is None:
            raise _C.ValueError(f"schema: got argument {part!r} in {text!r}; must be like 'Tensor x' or 'int n=1'")
        base, alias, suffix, name, default = declared.groups()
        kind = re.sub(r"\[\d+\]", "[]", base + suffix)
        kind = re.sub(r"^int\b", "SymInt", kind)
        if kind.rstrip("?[]") not in ("Tensor", "SymInt", "float", "bool", "str", "Scalar", "ScalarType", "Device"):
            raise _C.ValueError(f"schema: type {kind!r} of argument {name!r} in {text!r} is not supported; use Tensor, int, "
                                f"float, bool, "
                             "str, Scalar, ScalarType or Device, with ? or []")
        value = _required if default is None else _value(kind, default, text)
        arguments.append(Argument(name, kind, value, kw_only, alias is not None and "!" in alias))
    result = found[2]
    several = result.startswith("(")
    returns = [re.sub(r"\([\w!| >-]*\)", "", r).split()[0] for r in (_split(result[1:-1]) if several else [result])]
    returns = [re.sub(r"^int$", "SymInt", r) for r in returns]
    wrong = [r for r in returns if r not in _RETURNS]
    if wrong:
        raise _C.ValueError(f"schema: result {wrong[0]!r} in {text!r} is not supported; use Tensor, Tensor[], int, float or "
                            f"bool")
    if mutates_args is not None and not isinstance(mutates_args, str):
        declared_names = {a.name for a in arguments if a.mutated}
        if declared_names != set(mutates_args):
            raise _C.ValueError(f"schema {text!r} marks {sorted(declared_names)} as mutated, mutates_args has "
                                f"{sorted(mutates_args)}; they "
                             "must be equal")
    return Schema(tuple(arguments), tuple(returns), several and len(returns) > 0)


def _split(text: str) -> list[str]:
    """The parts between commas that are not inside of brackets."""
    parts, depth, current = [], 0, ""
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += c
    return [*parts, current.strip()] if current.strip() else parts


def _value(kind: str, text: str, schema: str) -> Any:
    named = {"None": None, "True": True, "False": False}
    if text in named:
        return named[text]
    if kind.startswith("ScalarType"):
        found = getattr(_C, text, None)
        if isinstance(found, _C.dtype):
            return found
    if text[0] in "\"'" and text[-1] == text[0]:
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return [_value(kind, part, schema) for part in _split(text[1:-1])]
    try:
        return float(text) if re.search(r"[.eE]|inf|nan", text) else int(text)
    except ValueError:
        raise _C.ValueError(f"schema: default {text!r} in {schema!r} is not a value") from None


def split_name(qualified: str) -> tuple[str, str]:
    """Splits "mylib::f" into its namespace and name."""
    namespace, separator, name = qualified.partition("::")
    if not separator or not namespace.isidentifier() or not _NAME.match(name):
        raise _C.ValueError(f"custom op: got name {qualified!r}; must be 'namespace::name', such as 'mylib::f'")
    return namespace, name
