"""GraphModule: a module whose forward is the code of a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
import weakref
from typing import Any, Callable, Union

from sluice._C import Tensor
from sluice.fx.graph import Graph, PythonCode
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter

__all__ = ["GraphModule"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_numbers = itertools.count()


def _function_of(code: PythonCode, owner: Any) -> Callable[..., Any]:
    """forward(), whose lines tracebacks show while its class lives, and until the next one."""
    name = f"<fx code {next(_numbers)}>"
    if (forget := owner.__dict__.get("_forget_source")) is not None:
        forget()
    linecache.cache[name] = (len(code.src), None, code.src.splitlines(True), name)
    owner._forget_source = staticmethod(weakref.finalize(owner, linecache.cache.pop, name, None))
    scope = {**code.globals, "__name__": "<fx code>"}
    exec(compile(code.src, name, "exec"), scope)
    return scope["forward"]


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Puts what has this path in one module into the other, with modules on the way where they are missing."""
    *path, field = target.split(".")
    for atom in path:
        inner = getattr(to_module, atom, None)
        if inner is getattr(from_module, atom):
            return  # all of it is there
        if inner is None:
            setattr(to_module, atom, inner := Module())
        from_module, to_module = getattr(from_module, atom), inner
    value = getattr(from_module, field)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(field, value)
    else:
        setattr(to_module, field, value)


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    *path, field = target.split(".")
    for atom in path:
        if not hasattr(to_module, atom):
            setattr(to_module, atom, Module())
        to_module = getattr(to_module, atom)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(field, value)
    else:
        setattr(to_module, field, value)


class _CodeOnlyModule(Module):
    """A module that is the attributes of another."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


class GraphModule(Module):
    """A module made of a graph: it has the submodules and tensors that the graph names, and its code as forward.

    root: the module that has them, or a dict of them by path. Every instance has a class of its own. After a change of the graph
    recompile() makes the code anew.
    """

    meta: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        base = next(c for c in cls.__mro__ if not c.__dict__.get("_of_one_instance", False))
        own = type(base.__name__, (base,), {"_of_one_instance": True, "__module__": base.__module__, "__qualname__": base.__qualname__})
        return super().__new__(own)

    def __init__(self, root: Union[Module, dict[str, Any]], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        targets = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = root.training
            for target in targets:
                _copy_attr(root, self, target)
        elif isinstance(root, dict):
            for target in sorted(set(targets), key=lambda path: path.count(".")):
                if target not in root:
                    raise RuntimeError(f"GraphModule: root: has no '{target}', which a node refers to; must have {', '.join(sorted(set(targets)))}")
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"GraphModule: root: {type(root).__name__}; must be a Module, or a dict of modules and tensors by path")
        self.graph = graph
        tracer = graph._tracer_cls
        self._tracer_cls = tracer if tracer is not None and "<locals>" not in tracer.__qualname__ else None
        self.meta = dict(root.meta) if isinstance(getattr(root, "meta", None), dict) else {}

    # Graph and code

    def _get_graph(self) -> Graph:
        return self.__dict__["_graph"]

    def _set_graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(graph)}")
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    graph = property(_get_graph, _set_graph)

    @property
    def code(self) -> str:
        """The source of forward."""
        if "_code" not in self.__dict__:
            raise RuntimeError("Code has not been generated! Please report a bug")
        return self._code

    def recompile(self) -> PythonCode:
        """Makes forward of the graph as it is now."""
        made = self._graph.python_code("self")
        cls = type(self)
        self._code = made.src
        cls.forward = _function_of(made, cls)
        return made

    # Submodules

    def add_submodule(self, target: str, m: Module) -> bool:
        """Adds a module at a path, and modules on the way; whether that can be."""
        *path, field = target.split(".")
        at: Module = self
        for atom in path:
            if not hasattr(at, atom):
                setattr(at, atom, Module())
            at = getattr(at, atom)
            if not isinstance(at, Module):
                return False
        at.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Deletes the module at a path; whether there was one."""
        *path, field = target.split(".")
        at: Any = self
        for atom in path:
            at = getattr(at, atom, None)
            if not isinstance(at, Module):
                return False
        if not isinstance(getattr(at, field, None), Module):
            return False
        delattr(at, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Deletes the modules that no node calls, or takes a tensor from."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                path = node.target.split(".")
                used.update(".".join(path[:i]) for i in range(1, len(path) + 1))
                if node.op == "call_module":
                    inner = self.get_submodule(node.target)
                    used.update(f"{node.target}.{name}" for name, _ in inner.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # Copies and pickles

    def _deepcopy_init(self) -> Any:
        return GraphModule.__init__

    def __deepcopy__(self, memo: Any) -> GraphModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        held = {name: value for name, value in self.__dict__.items() if name not in ("_graph", "meta")}
        body = _CodeOnlyModule(copy.deepcopy(held, memo))
        graph = copy.deepcopy(self._graph, memo)
        self._deepcopy_init()(made, body, graph)
        type(made).__name__ = type(self).__name__
        for name, value in body.__dict__.items():  # hooks, and what the graph does not name
            if name not in made.__dict__ or name.endswith("_hooks"):
                made.__dict__[name] = value
        made.training = self.training
        made.meta = dict(self.meta)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph, type(self).__name__)
        made.meta = dict(self.meta)
        self.graph.owning_module = self
        return made

    def __reduce__(self) -> Any:
        base = next(c for c in type(self).__mro__ if not c.__dict__.get("_of_one_instance", False))
        state = {name: value for name, value in self.__getstate__().items() if name != "_code"}
        return _restored, (base, type(self).__name__, state)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    # Text

    def print_readable(self, print_output: bool = True) -> str:
        """The code as a class; printed, too."""
        body = "\n".join(f"    {line}" for line in self._code.strip("\n").splitlines())
        text = f"class {type(self).__name__}(torch.nn.Module):\n{body}\n"
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        note = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code, note])


def _restored(base: Any, class_name: str, state: dict[str, Any]) -> GraphModule:
    made = base.__new__(base)
    type(made).__name__ = class_name
    made.__setstate__({name: value for name, value in state.items() if name != "_graph"})
    made.graph = state["_graph"]
    return made
