"""Tracer and symbolic_trace(): a module is run with proxies, and what it does with them is the graph."""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import threading
from collections import OrderedDict
from typing import Any, Callable, Iterator, Optional

from sluice._C import Tensor
from sluice._base.recorded import note
from sluice._base.trace import tracing_lock, within
from sluice.fx import _patching
from sluice.fx._arguments import arguments_of, root_function
from sluice.fx.graph import Graph
from sluice.fx.graph_module import GraphModule
from sluice.fx.node import Argument, Node, Target
from sluice.fx.proxy import ParameterProxy, Scope, TracerBase
from sluice.nn.modules.container import Sequential
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter

__all__ = ["Tracer", "symbolic_trace", "wrap"]

_is_fx_tracing_flag = False


def is_fx_tracing() -> bool:
    """Whether a Tracer runs now."""
    return _is_fx_tracing_flag


class _Calls:
    """While a trace runs, calls of modules are the tracer's (sluice._base.trace: regions)."""

    def __init__(self, tracer: Tracer, patches: _patching.Patches) -> None:
        self._tracer, self._patches = tracer, patches

    def get(self, module: Module) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._patches.look_at_module(module)
            return self._tracer.call_module(module, module._call_impl, args, kwargs)

        return call


class Tracer(TracerBase):
    """Traces modules and functions; subclasses say what is a leaf, and see every node that is made.

    autowrap_modules: modules of Python whose functions are recorded where the traced modules call them. autowrap_functions: more of
    them. param_shapes_constant: shapes of parameters are numbers while it traces. proxy_buffer_attributes (of the class): buffers
    become proxies as parameters do.
    """

    proxy_buffer_attributes = False
    root: Module
    scope: Scope

    def __init__(self, autowrap_modules: tuple[Any, ...] = (math,), autowrap_functions: tuple[Callable[..., Any], ...] = (),
                 param_shapes_constant: bool = False) -> None:
        self._autowrap_modules = autowrap_modules
        self._autowrap = [value for module in autowrap_modules for name, value in module.__dict__.items()
                          if not name.startswith("_") and callable(value) and not isinstance(value, type) and not isinstance(value, Module)]
        self._autowrap += list(autowrap_functions)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: Optional[dict[Module, str]] = None
        self.tensor_attrs: dict[int, str] = {}
        self.scope, self.module_stack = Scope("", None), OrderedDict()  # type: ignore[var-annotated]
        self.node_name_to_scope: dict[str, tuple[str, Any]] = {}

    # Subclasses override these

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether its call is one node; by default for all modules of nn but Sequential."""
        return m.__module__.startswith(("sluice.nn.", "sluice.quantization.")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """Its path below the root, as call_module has it."""
        if self.submodule_paths is not None:
            path = self.submodule_paths.get(mod)
        else:
            path = next((name for name, module in self.root.named_modules() if module is mod), None)
        if path is None:
            raise NameError("module is not installed as a submodule")
        return path

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module is called: a leaf is recorded, others run, so that what they do is recorded."""
        path = self.path_of_module(m)
        with self._inside(Scope(path, type(m))):
            key = f"{path}@{sum(k.partition('@')[0] == path for k in self.module_stack)}" if path in self.module_stack else path
            self.module_stack[key] = (path, type(m))
            try:
                if not self.is_leaf_module(m, path):
                    return forward(*args, **kwargs)
                return self.create_proxy("call_module", path, args, kwargs)
            finally:
                self.module_stack.pop(key)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """The value of module.attr for code that is traced: a proxy for a parameter of the root, else itself."""
        if isinstance(attr_val, Parameter):
            named = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            named = self.root.named_buffers()
        else:
            return attr_val
        path = next((name for name, value in named if value is attr_val), None)
        if path is None:
            return attr_val
        if path not in parameter_proxy_cache:
            made = self.create_proxy("get_attr", path, (), {})
            if self.param_shapes_constant and isinstance(attr_val, Parameter):
                made = ParameterProxy(self, made.node, path, attr_val)
            parameter_proxy_cache[path] = made
        return parameter_proxy_cache[path]

    def create_node(self, kind: str, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument], name: Optional[str] = None,
                    type_expr: Any = None) -> Node:
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if self.module_stack:
            node.meta["nn_module_stack"] = OrderedDict(self.module_stack)
        return node

    def create_arg(self, a: Any) -> Argument:
        """As TracerBase; parameters, buffers and modules of the root become get_attr, other tensors constants of the root."""
        if isinstance(a, Tensor):
            return self.create_node("get_attr", self._path_of_tensor(a), (), {})
        if isinstance(a, Module):
            path = next((name for name, module in self.root.named_modules() if module is a), None)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return self.create_node("get_attr", path, (), {})
        return super().create_arg(a)

    def _path_of_tensor(self, tensor: Tensor) -> str:
        if isinstance(tensor, Parameter):
            path = next((name for name, value in self.root.named_parameters() if value is tensor), None)
            if path is None:
                raise NameError("parameter is not a member of this module")
            return path
        for name, value in self.root.named_buffers():
            if value is tensor:
                return name
        if (found := self.tensor_attrs.get(id(tensor))) is not None:
            return found
        number = 0
        while hasattr(self.root, f"_tensor_constant{number}"):
            number += 1
        self.tensor_attrs[id(tensor)] = name = f"_tensor_constant{number}"
        setattr(self.root, name, tensor)
        return name

    @contextlib.contextmanager
    def _inside(self, scope: Scope) -> Iterator[None]:
        before, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = before

    # The trace

    def trace(self, root: Any, concrete_args: Optional[dict[str, Any]] = None) -> Graph:
        """The graph of a module's forward, or of a function.

        concrete_args: by name, values that the trace takes for inputs; the graph has these inputs, and asserts that they are equal.
        """
        global _is_fx_tracing_flag
        if isinstance(root, Module):
            self.root, fn = root, getattr(type(root), self.traced_func_name)
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root, fn, self.submodule_paths = Module(), root, None
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = dict(_tensors_of(self.root))
        self.module_stack.clear()
        with tracing_lock:
            patches, before = _patching.Patches(self._autowrap), _is_fx_tracing_flag
            _is_fx_tracing_flag = True
            try:
                self._look_around(patches, root, fn)
                self._patch_attributes(patches)
                fn, args = root_function(fn), arguments_of(self, fn, isinstance(root, Module), concrete_args)
                with within(regions=_Calls(self, patches), names=None):
                    result = fn(*args)
                self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=_annotation(fn))
            finally:
                _is_fx_tracing_flag = before
                patches.close()
                self.submodule_paths = None
        return self.graph

    def _look_around(self, patches: _patching.Patches, root: Any, fn: Any) -> None:
        for module in self._autowrap_modules:
            patches.look_at(vars(module))
        patches.look_at(getattr(inspect.unwrap(fn), "__globals__", {}))
        if isinstance(root, Module):
            for kind in {type(module): module for module in root.modules()}.values():
                patches.look_at_module(kind)

    def _patch_attributes(self, patches: _patching.Patches) -> None:
        original, cache, thread = Module.__getattr__, {}, threading.get_ident()  # type: ignore[var-annotated]

        def found(module: Module, name: str) -> Any:
            value = original(module, name)
            return self.getattr(name, value, cache) if isinstance(value, Tensor) and threading.get_ident() == thread else value

        patches.attribute(Module, "__getattr__", found)
        patches.attribute(Tensor, "__getitem__", _patching.recording_method(Tensor.__getitem__))


def _annotation(fn: Any) -> Any:
    return getattr(fn, "__annotations__", {}).get("return")


def _tensors_of(root: Module) -> Iterator[tuple[int, str]]:
    """Tensors that are plain attributes of modules."""
    for path, module in root.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                yield id(value), f"{path}.{name}" if path else name


def symbolic_trace(root: Any, concrete_args: Optional[dict[str, Any]] = None) -> GraphModule:
    """The GraphModule of a module or function: its calls as a graph, and code made of that. See Tracer.trace."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    return GraphModule(tracer.root, graph, type(root).__name__ if isinstance(root, Module) else root.__name__)


def wrap(fn_or_name: Any) -> Any:
    """At the head of a module, of a function in it, or its name: traces record its calls, and do not look into it. A decorator, too."""
    if not isinstance(fn_or_name, str) and not callable(fn_or_name):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    note(frame.f_globals, name)
    return fn_or_name
