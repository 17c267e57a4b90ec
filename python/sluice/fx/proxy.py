"""Proxies: they stand for values while a function is traced, and every use of one becomes a node."""

from __future__ import annotations

import dis
import enum
import operator
import sys
import types
from dataclasses import fields, is_dataclass
from typing import Any, Iterator, NoReturn, Optional

from sluice import _C
from sluice._base.device import device
from sluice._base.memory_format import layout, memory_format
from sluice.fx._targets import INFIX
from sluice.fx.graph import Graph
from sluice.fx.node import Argument, Node, Target

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "Scope", "TraceError", "TracerBase"]

# Nodes take these as they are.
base_types = (str, int, float, bool, complex, bytes, type(None), type(...), _C.dtype, device, enum.Enum, memory_format, layout)
_FUNCTIONS = (type, types.FunctionType, types.BuiltinFunctionType, type(_C.fn.relu))


class TraceError(ValueError):
    """Something that a trace cannot record: control flow by a value, above all."""


class Scope:
    """The module within which something is traced: its path and its class."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class TracerBase:
    """Makes nodes and proxies. Tracer is the one for modules.

    graph: what is made. record_stack_traces: nodes keep the lines that made them.
    """

    graph: Graph
    record_stack_traces = False
    traced_func_name = "forward"

    def create_node(self, kind: str, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument], name: Optional[str] = None,
                    type_expr: Any = None) -> Node:
        """Adds a node whose arguments create_arg() has made."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_proxy(self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], name: Optional[str] = None,
                     type_expr: Any = None, proxy_factory_fn: Any = None) -> Any:
        """Adds a node, whose arguments may have proxies, and gives its proxy."""
        given, keywords = self.create_arg(tuple(args)), self.create_arg(dict(kwargs))
        node = self.create_node(kind, target, given, keywords, name, type_expr)
        if self.record_stack_traces and node.stack_trace is None:
            node.stack_trace = _lines_of_user()
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Argument:
        """The form of a value among a node's arguments: a node for a proxy, the same for numbers, nests of these.
        NotImplementedError for anything else."""
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(self.create_arg(one) for one in a), {}) if _has_proxy(a) else a
        if isinstance(a, (tuple, list)):
            return (tuple if isinstance(a, tuple) else list)(self.create_arg(one) for one in a)
        if isinstance(a, dict):
            if any(_has_proxy(key) for key in a):
                raise RuntimeError(f"create_arg: a dict with a traced value among its keys: {list(a)}; must have plain keys")
            return {key: self.create_arg(one) for key, one in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(a.start, a.stop, a.step)
        if isinstance(a, (*base_types, *_FUNCTIONS, Node)):
            return a
        if is_dataclass(a) and not isinstance(a, type):
            keywords = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), keywords)
        raise NotImplementedError(f"argument of type: {type(a)}; must be a tensor, a number, text, a dtype or device, or a nest of these")

    # Programs ask these of values

    def to_bool(self, obj: Proxy) -> bool:
        """Called where a proxy is a condition."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Called where a loop, or *, goes over a proxy."""
        raise TraceError("Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs "
                         "function argument. See docs/fx.md for what control flow can be traced")

    def keys(self, obj: Proxy) -> Any:
        """Called where ** takes a proxy."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds to a graph that there is: Proxy(node) of it computes with operators."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scope, self.module_stack = Scope("", None), {}


class Proxy:
    """Stands for the value of a node. Calls with it, and of its methods, become nodes of the same graph."""

    node: Node
    tracer: TracerBase

    def __init__(self, node: Node, tracer: Optional[TracerBase] = None) -> None:
        self.__dict__.update(node=node, tracer=GraphAppendingTracer(node.graph) if tracer is None else tracer)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):  # what Python, NumPy and others ask objects for
            raise AttributeError(f"'Proxy' object has no attribute '{name}'")
        return Attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise TraceError(f"{self}: copied while it is traced; must be used, or cloned by clone()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        count = _unpacked(sys._getframe(1))
        return self.tracer.iter(self) if count is None else (self[i] for i in range(count))

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        return self.tracer.keys(self)

    def __len__(self) -> NoReturn:
        raise RuntimeError("'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
                           "torch.fx.wrap('len') at module scope")

    __hash__ = object.__hash__


# The methods of torch that operators of tensors are.
_METHODS = {"and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder"}


def _recorded(function: Any, reflected: bool) -> Any:
    name = function.__name__

    def method(self: Proxy, *args: Any) -> Any:
        if reflected and isinstance(args[0], _C.Tensor):
            return self.tracer.create_proxy("call_method", _METHODS.get(name, name), (*args, self), {})
        given = (*args, self) if reflected else (self, *args)
        return self.tracer.create_proxy("call_function", function, given, {})

    return method


_NO_REFLECTION = {"getitem", "eq", "ne", "lt", "gt", "le", "ge", "pos", "neg", "invert"}
for _name in INFIX:
    _plain = _name.strip("_")
    setattr(Proxy, f"__{_plain}__", _recorded(getattr(operator, _name), False))
    if _name not in _NO_REFLECTION:
        setattr(Proxy, f"__r{_plain}__", _recorded(getattr(operator, _name), True))


class Attribute(Proxy):
    """x.name of a proxy: a call of it is a method's, any other use a getattr()."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.__dict__.update(root=root, attr=attr, tracer=root.tracer, _node=None)

    @property
    def node(self) -> Any:  # type: ignore[override]
        # A node is made only where it is no method that is called.
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter, whose shape is known: shape, size(), dim(), ndim, numel() are its own (Tracer, param_shapes_constant)."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.__dict__.update(param=param, name=name)

    shape = property(lambda self: self.param.shape)
    ndim = property(lambda self: self.param.ndim)

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    def size(self, *args: Any) -> Any:
        return self.param.size(*args)

    def dim(self) -> int:
        return self.param.dim()

    def numel(self) -> int:
        return self.param.numel()

    nelement = numel


def _has_proxy(a: Any) -> bool:
    if isinstance(a, (tuple, list)):
        return any(map(_has_proxy, a))
    if isinstance(a, dict):
        return any(map(_has_proxy, a.values()))
    if isinstance(a, slice):
        return any(map(_has_proxy, (a.start, a.stop, a.step)))
    return isinstance(a, Proxy)


def first_proxy(a: Any) -> Optional[Proxy]:
    """The first in a nest."""
    if isinstance(a, Proxy):
        return a
    if isinstance(a, dict):
        a = a.values()
    elif isinstance(a, slice):
        a = (a.start, a.stop, a.step)
    elif not isinstance(a, (tuple, list)):
        return None
    return next((found for one in a if (found := first_proxy(one)) is not None), None)


def _unpacked(frame: Any) -> Optional[int]:
    """How many names the statement at hand takes a value apart into: 2 for a, b = proxy; None: it does nothing of the kind."""
    at = frame.f_lasti
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == at:
            return instruction.argval if instruction.opname == "UNPACK_SEQUENCE" else None
    return None


def _lines_of_user() -> str:
    import traceback

    frames = [f for f in traceback.extract_stack() if "/sluice/fx/" not in f.filename and "/sluice/nn/modules/module.py" not in f.filename]
    return "".join(traceback.format_list(frames[-8:]))


def _record_form(form: Any, args: Any, keywords: Any) -> Any:
    """A function or method of Tensor that was called with a proxy."""
    proxy = first_proxy((args, keywords))
    if proxy is None:
        return NotImplemented
    kind = "call_method" if type(form).__name__ == "Method" else "call_function"
    return proxy.tracer.create_proxy(kind, form.__name__ if kind == "call_method" else form, args, keywords)


_C.register_stand_in(Proxy, _record_form)
