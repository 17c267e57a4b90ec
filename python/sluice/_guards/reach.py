"""Follows code to what it reads besides its arguments: globals, closures, and the objects behind them."""

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

from sluice._C import Tensor
from sluice._base.parts import has_parts
from sluice.nn.modules.module import Module

from sluice._guards.code import is_foreign, is_users, is_users_class, names_of, origin_of, reads_grad
from sluice._guards.held import content_of, Held, made_of
from sluice._guards.values import in_class, is_container, is_plain, items_of, MISSING, own_table

# Python itself calls these methods when an object is made or shown: what they read is no part of a call.
_NOT_CALLED = frozenset(f"__{name}__" for name in (
    "init", "new", "init_subclass", "class_getitem", "set_name", "del", "repr", "str", "hash", "reduce", "reduce_ex",
    "getstate", "setstate", "copy", "deepcopy", "dir"))
# Modules to whose containers nobody gives attributes.
_NO_ATTRIBUTES = {*sys.stdlib_module_names, "sluice", "numpy"}
# Others call these methods of a class under names that code need not have: modules, functions with gradients of their own.
_CALLED_BY_US = frozenset(("forward", "backward", "setup_context", "jvp", "vmap"))


class Reach(Held):
    """Follows code to what it reads, and guards all plain values and identities on the way there.

    Code is known by its bytecode: the globals and cells that it names, and whatever attributes it names of objects that it can reach.
    """

    depth = sys.maxsize  # how many steps away from code that reads them objects are looked at
    most = sys.maxsize  # objects that are looked through

    def __init__(self, without: frozenset[Any] = frozenset(), known: Any = ()) -> None:
        """without: code that does not run here. known: objects that are not looked at."""
        super().__init__()
        self.tensors: dict[str, Tensor] = {}
        self.reads_grad = ""  # where code reads .grad
        self.iterator = ""  # what code takes items from, which are others in each call
        self._without = without
        self._seen: dict[int, Any] = {id(thing): None for thing in known}
        self._walked: set[tuple[type, bool]] = set()
        self._of_classes: set[tuple[type, str]] = set()
        self._read: frozenset[str] = frozenset()  # names of attributes that the code has

    # Walking over attributes of objects whose reads somebody notes, or not

    def is_noted(self, thing: Any) -> bool:
        """Whether what is read of the attributes of an object is noted elsewhere, so that names of attributes mean nothing."""
        return False

    def module(self, module: Module, where: str, depth: int) -> None:
        raise NotImplementedError("Reach: module() must be defined")

    def reach(self, thing: Any, where: str, depth: int = 0) -> None:
        if is_plain(thing) or depth > self.depth or len(self._seen) > self.most or id(thing) in self._seen:
            return
        if isinstance(thing, types.FunctionType):
            self.function(thing, where)
            return
        # The object is kept, not its id alone: an id may be used again once its object is gone.
        self._seen[id(thing)] = thing
        if isinstance(thing, Tensor):
            self._tensor(thing, where, depth)
        elif isinstance(thing, Module):
            self.module(thing, where or "model", depth)
        elif isinstance(thing, types.MethodType):
            self.reach(thing.__self__, where or "self", depth)
            self.reach(thing.__func__, where, depth)
        elif isinstance(thing, functools.partial):
            for i, part in enumerate((thing.func, *thing.args)):
                self.reach(part, join(where, f"partial{i}"), depth)
            for name in thing.keywords:
                self._entry(join(where, name), thing.keywords, name, depth)
        elif is_container(thing):
            self._container(thing, where, depth)
        elif isinstance(thing, type(os.environ)):
            self._container(thing._data, where, depth)
        elif isinstance(thing, types.SimpleNamespace):
            self._container(vars(thing), where, depth)
        elif isinstance(thing, weakref.ref):
            self._part(join(where, "referent"), thing, thing, depth)
        elif isinstance(thing, contextvars.ContextVar):
            self._part(join(where, "value"), thing, functools.partial(thing.get, MISSING), depth)
        elif isinstance(thing, collections.abc.Iterator):
            self.iterator = self.iterator or where
        elif isinstance(thing, type):
            self.class_(thing, self._read)
            self.function(vars(thing).get("__init__"), where)  # who reads a class may make objects of it
        elif isinstance(getattr(thing, "__wrapped__", None), types.FunctionType):  # by lru_cache
            self.function(thing.__wrapped__, where)
        elif isinstance(thing, types.ModuleType) or is_foreign(type(thing)):
            return
        else:
            self._object(thing, where, depth)

    def _tensor(self, thing: Any, where: str, depth: int) -> None:
        if has_parts(thing):
            for name in thing._to_parts()[0]:
                self._entry(join(where, name), own_table(thing), name, depth)
            return
        self.tensors[where or "tensor"] = thing
        for name in sorted(self._read & (own_table(thing) or {}).keys()):  # attributes that somebody has given it
            self._entry(join(where, name), own_table(thing), name, depth + 1)

    def _object(self, thing: Any, where: str, depth: int) -> None:
        """Another object: what code reads of it and of its class, where either may get it later."""
        noted = self.is_noted(thing)
        self.class_(type(thing), frozenset() if noted else self._read, is_called=True)
        self._typed.append((where, thing, type(thing)))
        if noted:
            return
        table = getattr(thing, "__dict__", None)
        for name in sorted(self._read):
            made = in_class(type(thing), name)
            if isinstance(made, types.MemberDescriptorType) or (isinstance(thing, threading.local) and name in table):
                self._part(join(where, name), thing, functools.partial(getattr, thing, name, MISSING), depth)
            elif isinstance(table, dict) and (name in table or not isinstance(made, functools.cached_property)):
                self._entry(join(where, name), table, name, depth + 1)

    def class_(self, cls: type, read: frozenset[str], is_called: bool = False) -> None:
        """Adds what is read of a class of the user's, its methods and properties with what they read. is_called: so are
        attributes that it may get later, of its objects."""
        if (cls, is_called) in self._walked:
            return
        self._walked.add((cls, is_called))
        if not is_users_class(cls):
            return
        self.class_(type(cls), read)
        own = {name for base in cls.__mro__ if is_users_class(base) for name in vars(base)}
        # Python calls special methods without their names being in the code: `a + b` reads `__add__`. Methods that
        # only make or show objects are left out.
        special = {name for name in own - _NOT_CALLED if name.startswith("__")}
        called = {name for name in special if isinstance(in_class(cls, name), types.FunctionType)}
        # A name that the class does not have yet is guarded as missing, so that one that comes later is seen.
        missing = frozenset() if issubclass(cls, Module) else read - own  # Watch sees what modules get
        for name in sorted(own & {*read, *_CALLED_BY_US} | called | missing):
            self.of_class(cls, name)

    def of_class(self, cls: type, name: str) -> None:
        """Adds the attribute that a class has under a name."""
        if (cls, name) in self._of_classes:
            return
        self._of_classes.add((cls, name))
        found = in_class(cls, name)
        self._classes.append((f"{cls.__name__}.{name}", cls, name, found))
        for part in functions_of(found):
            self.function(part, name)
        self.reach(found, f"{cls.__name__}_{name}", 1)
        for part in (found, *functions_of(found)):
            if isinstance(part, types.FunctionType) and is_users(part.__code__.co_filename):
                self._by_super(cls, part)

    def _by_super(self, cls: type, method: types.FunctionType) -> None:
        """Adds what a method of a class, or of a base, may read of the bases by super()."""
        names = names_of(method.__code__, self._without)
        for base in cls.__mro__[1:] if "super" in names.read else ():
            if is_users_class(base):
                for name in sorted(names.attributes & vars(base).keys()):
                    self.of_class(base, name)

    def function(self, function: Any, where: str) -> None:
        function = getattr(function, "__wrapped__", function) if not hasattr(function, "__code__") else function
        code = getattr(function, "__code__", None)
        if code is None or code in self._without or id(function) in self._seen or len(self._seen) > self.most:
            return
        if not is_users(code.co_filename):
            return
        self._seen[id(function)] = function
        if self.reads_grad == "" and (line := reads_grad(code)):
            self.reads_grad = f"{code.co_filename}:{line}"
        if isinstance(function, types.FunctionType):
            self._functions.append((f"{function.__name__}()", function, made_of(function)))
        names = names_of(code, self._without)
        # Attributes are matched by name: if any code that is reached says `.scale`, the `scale` of every object that
        # is reached is guarded. This finds too much rather than too little.
        self._read |= names.attributes
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            if name not in names.cells:
                continue  # it is for code that does not run here
            content = content_of(cell)
            self._cells.append((f"{name} of a closure", cell, content))
            if isinstance(content, types.ModuleType):
                self._namespace(content, name, names.attributes)
            self.reach(content, name, 1)
        for i, default in enumerate(function.__defaults__ or ()):
            self.reach(default, f"default{i}", 1)
        for name in function.__kwdefaults__ or ():
            self._entry(join(where, name), function.__kwdefaults__, name, 1)
        for name in sorted(vars(function).keys() & self._read):
            self._entry(join(where, name), vars(function), name, 1)
        for name in sorted(names.read):
            self._entry(name, function.__globals__, name, 1)
            content = function.__globals__.get(name, MISSING)
            if isinstance(content, types.ModuleType):
                self._namespace(content, name, names.attributes)
        self._of_functions(function, names)
        for name in sorted(names.imported):
            for full in (name, f"{function.__globals__.get('__package__') or ''}.{name}"):
                if full in sys.modules:
                    self._namespace(sys.modules[full], full, names.attributes)

    def _of_functions(self, function: Any, names: Any) -> None:
        """Adds attributes that code names of functions, also those that they do not have yet."""
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        for name, attribute in sorted(names.pairs):
            found = content_of(cells[name]) if name in cells else function.__globals__.get(name, MISSING)
            if isinstance(found, types.FunctionType) and is_users(found.__code__.co_filename):
                self._entry(join(name, attribute), vars(found), attribute, 1)

    def _namespace(self, module: Any, name: str, attributes: frozenset[str]) -> None:
        """A module of Python's, of which code reads these attributes."""
        if module is os and {"environ", "getenv"} & attributes:
            self.reach(os.environ, "os.environ", 1)
        elif is_users(getattr(module, "__file__", "") or "") and id(module) not in self._seen:
            self._seen[id(module)] = module
            for attribute in sorted(attributes & vars(module).keys()):
                self._entry(f"{name}.{attribute}", vars(module), attribute, 1)
                if isinstance(vars(module)[attribute], types.ModuleType):
                    self._namespace(vars(module)[attribute], f"{name}.{attribute}", attributes)
            # Other code may read other attributes of the module, so it may be visited again; `_seen` only ends circles
            # of modules that import each other.
            del self._seen[id(module)]

    def _part(self, where: str, thing: Any, read: Any, depth: int) -> None:
        """Adds the part that `read` gives of an object, now and later, and elsewhere perhaps on each thread."""
        self._parts.append((where, thing, read, read()))
        self.reach(self._parts[-1][-1], where, depth + 1)

    def _entry(self, where: str, table: Any, name: str, depth: int) -> None:
        content = table.get(name, MISSING)
        self.entry(where, table, name, content)
        if self._entries[-1][-1] is content:  # else it is compared by value, wherever it lies
            self.reach(content, where.replace(".", "_"), depth)

    def _container(self, thing: Any, where: str, depth: int) -> None:
        self.container(where, thing)
        for i, item in enumerate(items_of(thing)):
            self.reach(item, join(where, str(i)), depth + 1)
        if origin_of(type(thing)).partition(".")[0] not in _NO_ATTRIBUTES and own_table(thing) is not None:
            self._object(thing, where, depth)  # of a class derived from list or dict


def functions_of(thing: Any) -> tuple[Any, ...]:
    """The functions behind an attribute of a class."""
    if isinstance(thing, property):
        return (thing.fget,)
    if isinstance(thing, (staticmethod, classmethod)):
        return (thing.__func__,)
    return (thing.func,) if isinstance(thing, functools.cached_property) else ()


def join(where: str, part: str) -> str:
    return f"{where}.{part}" if where else part
