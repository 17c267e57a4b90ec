"""The inputs of what is traced: a placeholder for each parameter of the function."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any, Callable, Optional

from sluice._base.recorded import _assert

if TYPE_CHECKING:
    from sluice.fx._symbolic_trace import Tracer

_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def _assert_is_none(value: Any, msg: str) -> None:
    assert value is None, msg


def _code_of(fn: Any) -> types.CodeType:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if not isinstance(code, types.CodeType):
        raise TypeError(f"Tracer.trace: root: {fn!r}; must be a Module or a function of Python")
    return code


def root_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that is run: with *args, **kwargs or keyword-only parameters, these are given by place, as one value each."""
    code = _code_of(fn)
    if not code.co_flags & _VARIADIC and not code.co_kwonlyargcount or isinstance(fn, types.MethodType):
        return fn
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    plain = code.replace(co_flags=code.co_flags & ~_VARIADIC, co_argcount=count, co_kwonlyargcount=0, co_posonlyargcount=0)
    original = inspect.unwrap(fn)
    made = types.FunctionType(plain, original.__globals__, original.__name__, original.__defaults__, original.__closure__)
    made.__kwdefaults__ = original.__kwdefaults__
    return made


def arguments_of(tracer: Tracer, fn: Any, of_module: bool, concrete_args: Optional[dict[str, Any]]) -> list[Any]:
    """The arguments that fn is called with: the module where it is a method of one, then a placeholder's proxy or the concrete value."""
    original, code = inspect.unwrap(fn), _code_of(fn)
    concrete, parameters = dict(concrete_args or {}), inspect.signature(original).parameters
    names = list(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])
    args: list[Any] = [tracer.root] if of_module else []
    if of_module or isinstance(fn, types.MethodType):
        if not names:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        names = names[1:]
    if unknown := [name for name in concrete if name not in names]:
        raise ValueError(f"Tracer.trace: concrete_args: {', '.join(map(repr, unknown))}; must be among the parameters, which are {', '.join(names)}")
    for name in names:
        default = parameters[name].default
        given = () if default is inspect.Parameter.empty else (default,)
        if name in concrete:
            args.append(_concrete(tracer, name, given, concrete[name]))
        else:
            args.append(tracer.create_proxy("placeholder", name, given, {}, type_expr=original.__annotations__.get(name)))
    rest = code.co_argcount + code.co_kwonlyargcount
    for flag, stars in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")):
        if code.co_flags & flag:
            args.append(tracer.create_proxy("placeholder", stars + code.co_varnames[rest], (), {}))
            rest += 1
    return args


def _concrete(tracer: Tracer, name: str, default: tuple[Any, ...], value: Any) -> Any:
    """The value, and in the graph an input that is asserted to be equal."""
    if not isinstance(value, (bool, int, float, str, type(None))):
        raise NotImplementedError(f"Tracer.trace: concrete_args: {name}: of {type(value).__name__}; must be a number, text or None: give others "
                                  "by functools.partial, or as attributes of a module")
    proxy = tracer.create_proxy("placeholder", f"{name}_1", default, {})
    if value is None:
        tracer.create_proxy("call_function", _assert_is_none, (proxy, f"{name} has been specialized to have value None but got another value"), {})
    else:
        message = f"{name} has been specialized to have value {value} but got another value"
        tracer.create_proxy("call_function", _assert, (proxy == value, message), {})
    return value
