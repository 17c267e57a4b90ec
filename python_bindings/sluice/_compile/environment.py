"""What a function or a module reads besides its arguments: globals, closures, and the objects behind them."""

from __future__ import annotations

import collections
import contextvars
import functools
import os
import sys
import threading
import types
import weakref
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice.nn.graph.watch import _in_class, _is_plain
from sluice.nn.modules.module import Module

from sluice._compile.code import is_users, names_of, reads_grad
from sluice._compile.contents import differs, fill, is_array, MISSING, same_items, TABLES

_DEPTH = 4
_MANY = 4096  # objects that are looked through at most
_CONTAINERS = (list, tuple, dict, set, collections.deque)
# What Python itself calls of an object when it is made or shown: what it reads is no part of a call.
_NOT_CALLED = frozenset(f"__{name}__" for name in (
    "init", "new", "init_subclass", "class_getitem", "set_name", "del", "repr", "str", "hash", "reduce", "reduce_ex",
    "getstate", "setstate", "copy", "deepcopy", "dir"))


class Environment:
    """Modules and tensors that code reaches, by name, and guards on all plain values and identities on the way there."""

    def __init__(self, function: Any, arguments: list[Any]) -> None:
        self.modules: dict[str, Module]
        self.tensors: dict[str, Tensor]
        self.reads_grad = ""  # where code reads .grad
        self.iterator = ""  # what code takes items from, which are others in each call
        self._seen: dict[int, Any]
        self._walked: dict[int, type]  # classes
        self._entries: list[tuple[str, Any, str, Any]]  # (where, dict, name, object), which may be missing, as in the next two
        self._cells: list[tuple[str, Any, Any]]
        self._classes: list[tuple[str, type, str, Any]]  # (where, class, name, what it or a base has under that name)
        self._functions: list[tuple[str, Any, Any]]  # (where, function, its code and defaults)
        self._typed: list[tuple[str, Any, type]]  # (where, object, its class)
        self._parts: list[tuple[str, Any, Any, Any]]  # (where, object, what gives a part of it that no dict has, the part)
        self._containers: list[tuple[str, Any, Any]]  # (where, container, copy of it)
        self._read: set[str] = set()  # names of attributes that the code has
        self._same: Any = None  # SameObjects, once all was found to be as it was
        known = -1
        while len(self._read) > known:  # till it is known which attributes code reads, wherever it is
            known = len(self._read)
            self.modules, self.tensors = {}, {}
            self._seen, self._entries, self._cells, self._containers = {}, [], [], []
            self._walked, self._classes, self._functions, self._parts, self._typed = {}, [], [], [], []
            self._reach(function, "", 0)
            for i, thing in enumerate(arguments):
                self._reach(thing, f"argument{i}", 0)

    def _reach(self, thing: Any, where: str, depth: int) -> None:
        if _is_plain(thing) or depth > _DEPTH or len(self._seen) > _MANY or id(thing) in self._seen:
            return
        if isinstance(thing, types.FunctionType):
            self._function(thing, where, depth)
            return
        self._seen[id(thing)] = thing
        if isinstance(thing, Tensor):
            self.tensors[where or "tensor"] = thing
        elif isinstance(thing, Module):
            self._module(thing, where or "model", depth)
        elif isinstance(thing, types.MethodType):
            self._reach(thing.__self__, where or "self", depth)
            self._function(thing.__func__, where, depth)
        elif isinstance(thing, functools.partial):
            for i, part in enumerate((thing.func, *thing.args)):
                self._reach(part, _join(where, f"partial{i}"), depth)
            for name in thing.keywords:
                self._entry(_join(where, name), thing.keywords, name, depth)
        elif isinstance(thing, _CONTAINERS) or is_array(thing):
            self._container(thing, where, depth)
        elif isinstance(thing, type(os.environ)):
            self._container(thing._data, where, depth)
        elif isinstance(thing, weakref.ref):
            self._part(_join(where, "referent"), thing, thing, depth)
        elif isinstance(thing, contextvars.ContextVar):
            self._part(_join(where, "value"), thing, functools.partial(thing.get, MISSING), depth)
        elif isinstance(thing, collections.abc.Iterator):
            self.iterator = self.iterator or where
        elif isinstance(thing, type):
            self._class(thing, depth)
            self._function(vars(thing).get("__init__"), where, depth)  # who reads a class may make objects of it
        elif isinstance(thing, types.ModuleType) or str(type(thing).__module__).partition(".")[0] in ("sluice", "builtins"):
            return
        else:
            self._object(thing, where, depth)

    def _module(self, module: Module, where: str, depth: int) -> None:
        name = where.replace(".", "_")
        if not any(module is m for m in self.modules.values()):
            self.modules[name] = module
        for inner in module.modules():
            self._seen.setdefault(id(inner), inner)
            for hook in (*inner._forward_pre_hooks.values(), *inner._forward_hooks.values()):
                self._reach(hook, _join(where, "hook"), depth + 1)
            self._class(type(inner), depth)
            for attribute in sorted(vars(inner).keys() & {*self._read, "forward"} - {*TABLES}):
                value = vars(inner)[attribute]
                if isinstance(value, (Tensor, Module)):  # Watch sees another one, as it does of plain values
                    self._reach(value, _join(where, attribute), depth + 1)
                elif not _is_plain(value):
                    self._entry(_join(where, attribute), vars(inner), attribute, depth + 1)

    def _object(self, thing: Any, where: str, depth: int) -> None:
        """Another object: what code reads of it and of its class, where either may get it later."""
        self._class(type(thing), depth)
        self._typed.append((where, thing, type(thing)))
        table = getattr(thing, "__dict__", None)
        for name in sorted(self._read):
            made = _in_class(type(thing), name)
            if isinstance(made, types.MemberDescriptorType) or (isinstance(thing, threading.local) and name in table):
                self._part(_join(where, name), thing, functools.partial(getattr, thing, name, MISSING), depth)
            elif isinstance(table, dict) and (name in table or not isinstance(made, functools.cached_property)):
                self._entry(_join(where, name), table, name, depth + 1)

    def _class(self, cls: type, depth: int) -> None:
        """What code reads of a class of the user's, its methods and properties with what they read."""
        if id(cls) in self._walked or not _is_users_class(cls):
            return
        self._walked[id(cls)] = cls
        own = {name for base in cls.__mro__ if _is_users_class(base) for name in vars(base)}
        special = {name for name in own - _NOT_CALLED if name.startswith("__")}
        called = {name for name in special if isinstance(_in_class(cls, name), types.FunctionType)}
        missing = frozenset() if issubclass(cls, Module) else self._read - own  # Watch sees what modules get
        for name in sorted(own & {*self._read, "forward"} | called | missing):
            found = _in_class(cls, name)
            self._classes.append((f"{cls.__name__}.{name}", cls, name, found))
            for part in _functions_of(found):
                self._function(part, name, depth + 1)
            self._reach(found, f"{cls.__name__}_{name}", depth + 1)

    def _function(self, function: Any, where: str, depth: int) -> None:
        function = getattr(function, "__wrapped__", function) if not hasattr(function, "__code__") else function
        code = getattr(function, "__code__", None)
        if code is None or id(function) in self._seen or len(self._seen) > _MANY or not is_users(code.co_filename):
            return
        self._seen[id(function)] = function
        if self.reads_grad == "" and (line := reads_grad(code)):
            self.reads_grad = f"{code.co_filename}:{line}"
        if isinstance(function, types.FunctionType):
            self._functions.append((f"{function.__name__}()", function, _made_of(function)))
        read, attributes = names_of(code)
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            content = _content(cell)
            self._cells.append((f"{name} of a closure", cell, content))
            if isinstance(content, types.ModuleType):
                self._namespace(content, name, attributes, depth)
            self._reach(content, name, depth + 1)
        for i, default in enumerate(function.__defaults__ or ()):
            self._reach(default, f"default{i}", depth + 1)
        for name in function.__kwdefaults__ or ():
            self._entry(_join(where, name), function.__kwdefaults__, name, depth + 1)
        self._read |= attributes
        for name in sorted(vars(function).keys() & self._read):
            self._entry(_join(where, name), vars(function), name, depth + 1)
        for name in sorted(read):
            content = function.__globals__.get(name, MISSING)
            if isinstance(content, types.ModuleType):
                self._namespace(content, name, attributes, depth)
            else:
                self._entry(name, function.__globals__, name, depth + 1)

    def _namespace(self, module: Any, name: str, attributes: frozenset[str], depth: int) -> None:
        """A module of Python's, of which code reads these attributes."""
        if module is os and {"environ", "getenv"} & attributes:
            self._reach(os.environ, "os.environ", depth + 1)
        elif is_users(getattr(module, "__file__", "") or ""):
            for attribute in sorted(attributes & vars(module).keys()):
                self._entry(f"{name}.{attribute}", vars(module), attribute, depth + 1)

    def _part(self, where: str, thing: Any, read: Any, depth: int) -> None:
        """What `read` gives of an object, now and later, and elsewhere perhaps on each thread."""
        self._parts.append((where, thing, read, read()))
        self._reach(self._parts[-1][-1], where, depth + 1)

    def _entry(self, where: str, table: Any, name: str, depth: int) -> None:
        content = table.get(name, MISSING)
        self._entries.append((where, table, name, content))
        self._reach(content, where.replace(".", "_"), depth)

    def _container(self, thing: Any, where: str, depth: int) -> None:
        if not isinstance(thing, tuple):
            self._containers.append((where, thing, thing.copy()))
        if not is_array(thing) and len(thing) <= 256:
            for i, item in enumerate(list(thing.values() if isinstance(thing, dict) else thing)):
                self._reach(item, _join(where, str(i)), depth + 1)

    def changed(self) -> str | None:
        """What is not as it was; None: all is."""
        if self._same is None or not self._same.hold():
            same = self._same_objects()
            for where, now, then in self._now():
                if now is not then and differs(now, then):
                    return where
            self._same = same  # perhaps other objects of the same value
        for where, _, read, then in self._parts:
            now = read()
            if now is not then and differs(now, then):
                return where
        for where, thing, copy in self._containers:
            if not same_items(thing, copy):
                return where
        return None

    def _now(self) -> Any:
        """(where, what is there now, what was there)."""
        for where, table, name, then in self._entries:
            yield where, table.get(name, MISSING), then
        for where, cell, then in self._cells:
            yield where, _content(cell), then
        for where, cls, name, then in self._classes:
            yield where, _in_class(cls, name), then
        for where, thing, cls in self._typed:
            yield where, type(thing), cls
        for where, function, then in self._functions:
            for now, part in zip(_made_of(function), then):
                yield where, now, part

    def _same_objects(self) -> Any:
        return _C.SameObjects(entries=[(table, name) for _, table, name, _ in self._entries],
                              cells=[cell for _, cell, _ in self._cells],
                              classes=[(cls, name) for _, cls, name, _ in self._classes],
                              typed=[thing for _, thing, _ in self._typed],
                              functions=[function for _, function, _ in self._functions])

    def identities(self) -> Any:
        """SameObjects that hold for as long as all is as it was; None where identities say too little."""
        return None if self._containers or self._parts or self.changed() else self._same

    def restore(self) -> None:
        """Puts back what was there when this was made."""
        for _, table, name, then in self._entries:
            if then is MISSING:
                table.pop(name, None)
            elif table.get(name, MISSING) is not then:
                table[name] = then
        for _, cell, then in self._cells:
            if then is not MISSING:
                cell.cell_contents = then
        for _, cls, name, then in self._classes:
            if then is not _in_class(cls, name):
                delattr(cls, name) if then is MISSING else setattr(cls, name, then)
        for _, thing, read, then in self._parts:
            if isinstance(thing, contextvars.ContextVar):
                if then is not MISSING and read() is not then:
                    thing.set(then)
            elif isinstance(read, functools.partial) and then is not MISSING and read() is not then:
                setattr(thing, read.args[1], then)
        for _, thing, copy in self._containers:
            if not same_items(thing, copy):
                fill(thing, copy)

    def guards(self) -> list[str]:
        """In words."""
        values = [*self._entries, *self._classes, *self._parts]
        return ([f"{where} is {_short(then)}" for where, _, _, then in values if then is not MISSING] +
                [f"{where} is {_short(then)}" for where, _, then in self._cells] +
                [f"{where} has the same code and defaults" for where, _, _ in self._functions] +
                [f"{where} has the same items" for where, _, _ in self._containers])


def _is_users_class(cls: type) -> bool:
    return cls.__module__ == "__main__" or is_users(getattr(sys.modules.get(cls.__module__), "__file__", "") or "")


def _functions_of(thing: Any) -> tuple[Any, ...]:
    """Of what a class has under a name."""
    if isinstance(thing, property):
        return (thing.fget,)
    if isinstance(thing, (staticmethod, classmethod)):
        return (thing.__func__,)
    return (thing.func,) if isinstance(thing, functools.cached_property) else ()


def _made_of(function: Any) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _short(thing: Any) -> str:
    return repr(thing)[:60] if _is_plain(thing) else f"the same {type(thing).__name__}"


def _join(where: str, part: str) -> str:
    return f"{where}.{part}" if where else part
