"""What a function or a module reads besides its arguments: globals, closures, and the objects behind them."""

from __future__ import annotations

import dis
import functools
import sys
import sysconfig
import types
from typing import Any

from sluice._C import Tensor
from sluice.nn.graph.watch import _copy, _differs, _is_plain, _NOTHING
from sluice.nn.modules.module import Module

from sluice._compile.breaks import is_ours

_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
_DEPTH = 4
_MANY = 4096  # objects that are looked through at most
_MISSING = object()
_TABLES = ("_parameters", "_buffers", "_modules")


def _is_users(file: str) -> bool:
    """Code of the user, not of a library."""
    return bool(file) and not is_ours(file) and not (file.startswith(_LIBRARY) and "site-packages" not in file) and "site-packages" not in file


@functools.lru_cache(maxsize=4096)
def _reads_grad(code: types.CodeType) -> int:
    """The line where code reads `.grad` of something that is not called autograd, func or torch; 0: it does not."""
    before, line = None, 0
    for i in dis.get_instructions(code):
        line = getattr(i, "line_number", i.starts_line) or line  # Python 3.13 says it otherwise
        if i.opname == "LOAD_ATTR" and i.argval == "grad" and before not in ("autograd", "func", "torch", "sl", "sluice"):
            return line
        before = i.argval
    return next((found for c in code.co_consts if isinstance(c, types.CodeType) and (found := _reads_grad(c))), 0)


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Of code and what is defined in it: the globals that it reads, and all names of attributes."""
    read, attributes = set(), set()
    for i in dis.get_instructions(code):
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            read.add(i.argval)
        elif i.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.add(i.argval)
    for constant in code.co_consts:
        if isinstance(constant, str) and constant.isidentifier():
            attributes.add(constant)  # of getattr
        elif isinstance(constant, types.CodeType):
            more = _names(constant)
            read |= more[0]
            attributes |= more[1]
    return frozenset(read), frozenset(attributes)


class Environment:
    """Modules and tensors that code reaches, by name, and guards on all plain values and identities on the way there."""

    def __init__(self, function: Any, arguments: list[Any]) -> None:
        self.modules: dict[str, Module]
        self.tensors: dict[str, Tensor]
        self.reads_grad = ""  # where code reads .grad
        self._seen: dict[int, Any]
        self._entries: list[tuple[str, Any, str, Any]]  # (where, dict, name, object)
        self._cells: list[tuple[str, Any, Any]]
        self._containers: list[tuple[str, Any, Any]]  # (where, container, copy of it)
        self._read: set[str] = set()  # names of attributes that the code has
        for _ in range(2):  # first to find out which attributes code reads, wherever it is
            self.modules, self.tensors = {}, {}
            self._seen, self._entries, self._cells, self._containers = {}, [], [], []
            self._reach(function, "", 0)
            for i, thing in enumerate(arguments):
                self._reach(thing, f"argument{i}", 0)

    def _reach(self, thing: Any, where: str, depth: int) -> None:
        if _is_plain(thing) or depth > _DEPTH or len(self._seen) > _MANY or id(thing) in self._seen:
            return
        self._seen[id(thing)] = thing
        if isinstance(thing, Tensor):
            self.tensors[where or "tensor"] = thing
        elif isinstance(thing, Module):
            self._module(thing, where or "model", depth)
        elif isinstance(thing, types.MethodType):
            self._reach(thing.__self__, where or "self", depth)
            self._function(thing.__func__, where, depth)
        elif isinstance(thing, types.FunctionType):
            self._function(thing, where, depth)
        elif isinstance(thing, functools.partial):
            for i, part in enumerate((thing.func, *thing.args, *thing.keywords.values())):
                self._reach(part, _join(where, f"partial{i}"), depth)
        elif isinstance(thing, (list, tuple, dict, set)):
            self._container(thing, where, depth)
        elif isinstance(thing, types.ModuleType) or str(type(thing).__module__).partition(".")[0] in ("sluice", "builtins"):
            return
        elif isinstance(thing, type):
            if _is_users(getattr(sys.modules.get(thing.__module__), "__file__", "") or ""):
                self._attributes(vars(thing), thing.__name__, depth)
        elif hasattr(thing, "__dict__"):
            self._attributes(vars(thing), where, depth)
            if callable(thing) and isinstance(getattr(type(thing), "__call__", None), types.FunctionType):
                self._function(type(thing).__call__, where, depth)

    def _module(self, module: Module, where: str, depth: int) -> None:
        name = where.replace(".", "_")
        if not any(module is m for m in self.modules.values()):
            self.modules[name] = module
        for inner in module.modules():
            self._seen.setdefault(id(inner), inner)
            for hook in (*inner._forward_pre_hooks.values(), *inner._forward_hooks.values()):
                self._reach(hook, _join(where, "hook"), depth + 1)
            code = getattr(type(inner).forward, "__code__", None)
            if code is not None and _is_users(code.co_filename):
                self._function(type(inner).forward, where, depth + 1)
                names = {name for base in type(inner).__mro__ for name, f in vars(base).items() if isinstance(f, types.FunctionType)
                         and _is_users(f.__code__.co_filename)}
                for method in sorted(names & _names(code)[1]):
                    self._function(getattr(type(inner), method), where, depth + 1)
            for attribute, value in vars(inner).items():
                if attribute in self._read and attribute not in _TABLES and not _is_plain(value):
                    self._reach(value, _join(where, attribute), depth + 1)

    def _function(self, function: Any, where: str, depth: int) -> None:
        function = getattr(function, "__wrapped__", function) if not hasattr(function, "__code__") else function
        code = getattr(function, "__code__", None)
        if code is None or id(code) in self._seen or not _is_users(code.co_filename):
            return
        self._seen[id(code)] = code
        if self.reads_grad == "" and (line := _reads_grad(code)):
            self.reads_grad = f"{code.co_filename}:{line}"
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                content = cell.cell_contents
            except ValueError:
                continue
            self._cells.append((f"{name} of a closure", cell, content))
            self._reach(content, _join("", name), depth + 1)
        for i, default in enumerate(function.__defaults__ or ()):
            self._reach(default, f"default{i}", depth + 1)
        read, attributes = _names(code)
        self._read |= attributes
        for name in sorted(read & function.__globals__.keys()):
            content = function.__globals__[name]
            if isinstance(content, types.ModuleType):
                if _is_users(getattr(content, "__file__", "") or ""):
                    for attribute in sorted(attributes & vars(content).keys()):
                        self._entry(f"{name}.{attribute}", vars(content), attribute, depth + 1)
            else:
                self._entry(name, function.__globals__, name, depth + 1)

    def _entry(self, where: str, table: Any, name: str, depth: int) -> None:
        self._entries.append((where, table, name, table[name]))
        self._reach(table[name], where.replace(".", "_"), depth)

    def _attributes(self, table: Any, where: str, depth: int) -> None:
        for name, value in list(table.items()):
            if name in self._read and not isinstance(value, types.FunctionType):
                self._entry(_join(where, name), table, name, depth + 1)

    def _container(self, thing: Any, where: str, depth: int) -> None:
        items = list(thing.values()) if isinstance(thing, dict) else list(thing)
        if not isinstance(thing, tuple):
            self._containers.append((where, thing, _shallow(thing)))
        if len(items) <= 256:
            for i, item in enumerate(items):
                self._reach(item, _join(where, str(i)), depth + 1)

    def changed(self) -> str | None:
        """What is not as it was; None: all is."""
        for where, table, name, then in self._entries:
            now = table.get(name, _MISSING)
            if now is not then and _other(now, then):
                return where
        for where, cell, then in self._cells:
            try:
                now = cell.cell_contents
            except ValueError:
                return where
            if now is not then and _other(now, then):
                return where
        for where, thing, copy in self._containers:
            if not _same_items(thing, copy):
                return where
        return None

    def identities(self) -> tuple[list[Any], list[Any]] | None:
        """(dict, key) and cells whose contents are as they were for as long as they are the same; None where that says too little."""
        if self._containers or not all(isinstance(table, dict) for _, table, _, _ in self._entries):
            return None
        return [(table, name) for _, table, name, _ in self._entries], [cell for _, cell, _ in self._cells]

    def restore(self) -> None:
        """Puts back what was there when this was made."""
        for _, table, name, then in self._entries:
            if isinstance(table, dict) and table.get(name, _MISSING) is not then:
                table[name] = then
        for _, cell, then in self._cells:
            cell.cell_contents = then
        for _, thing, copy in self._containers:
            if not _same_items(thing, copy):
                thing.clear()
                (thing.extend if isinstance(thing, list) else thing.update)(copy)

    def guards(self) -> list[str]:
        """In words."""
        return ([f"{where} is {_short(then)}" for where, _, _, then in self._entries] +
                [f"{where} is {_short(then)}" for where, _, then in self._cells] +
                [f"{where} has the same items" for where, _, _ in self._containers])


def _short(thing: Any) -> str:
    return repr(thing)[:60] if _is_plain(thing) else f"the same {type(thing).__name__}"


def _other(now: Any, then: Any) -> bool:
    if isinstance(then, types.MethodType) and now == then:
        return False
    return _copy(now) is _NOTHING or _copy(then) is _NOTHING or _differs(now, then)


def _shallow(thing: Any) -> Any:
    return thing.copy()


def _same_items(thing: Any, copy: Any) -> bool:
    if len(thing) != len(copy):
        return False
    if isinstance(thing, set):
        return thing == copy
    if isinstance(thing, dict):
        return all(a is b for a, b in zip(thing, copy)) and all(thing[k] is copy[k] or _is_equal(thing[k], copy[k]) for k in thing)
    return all(a is b or _is_equal(a, b) for a, b in zip(thing, copy))


def _is_equal(a: Any, b: Any) -> bool:
    return _is_plain(a) and _is_plain(b) and not _differs(a, b)


def _join(where: str, part: str) -> str:
    return f"{where}.{part}" if where else part


class Attributes:
    """The attributes of modules as they are now: whether a run changes them, and to put them back."""

    _OURS = (*_TABLES, "_graph_config")

    def __init__(self, modules: list[Module]) -> None:
        self._of = [(m, dict(vars(m)), {t: dict(vars(m)[t]) for t in _TABLES},
                     {n: v.copy() for n, v in vars(m).items() if type(v) in (list, dict, set) and not n.startswith("_")}) for m in modules]

    def changed(self) -> str | None:
        for module, own, tables, copies in self._of:
            now = vars(module)
            for name in now.keys() | own.keys():
                if name not in self._OURS and now.get(name, _MISSING) is not own.get(name, _MISSING) and not _is_equal(
                        now.get(name, _MISSING), own.get(name, _MISSING)):
                    return f"{type(module).__name__}.{name}"
            for table, entries in tables.items():
                for name in now[table].keys() | entries.keys():
                    if now[table].get(name, _MISSING) is not entries.get(name, _MISSING):
                        return f"{type(module).__name__}.{name}"
            for name, copy in copies.items():
                if not _same_items(now[name], copy):
                    return f"{type(module).__name__}.{name}"
        return None

    def restore(self) -> None:
        for module, own, tables, copies in self._of:
            now = vars(module)
            for name in list(now.keys() - own.keys()):
                del now[name]
            now.update(own)
            for table, entries in tables.items():
                now[table].clear()
                now[table].update(entries)
            for name, copy in copies.items():
                if not _same_items(now[name], copy):
                    now[name].clear()
                    (now[name].extend if isinstance(copy, list) else now[name].update)(copy)
