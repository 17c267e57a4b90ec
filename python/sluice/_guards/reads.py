"""Notes, while code is traced, what it reads of objects; afterwards, guards on all that it depends on."""

from __future__ import annotations

import collections.abc
import sys
import threading
import types
from typing import Any, Iterator, NamedTuple

from sluice._C import Tensor
from sluice.nn.modules.module import Module

from sluice._guards.code import is_foreign, is_ours, is_standard, is_users_class, origin_of
from sluice._guards.held import content_of
from sluice._guards.reach import functions_of, Reach
from sluice._guards.values import copy_of, differs, in_class, MISSING, own_table, same_items

_HEAP, _IMMUTABLE = 1 << 9, 1 << 8
# Reads of these names of a module need no guard, since Watch looks at the tables by itself and the methods are ours.
_TABLES = frozenset(vars(Module())) - {"training"}
_OURS = frozenset(dir(Module)) - {"forward"} | _TABLES
_OF_OURS = ("sluice.optim", "sluice.amp")  # whose changes graphs see by themselves


class Read(NamedTuple):
    """One attribute of an object, as it was read first. kind: "own" (of its dict), "slot", "class", "all" (the dict itself).
    value: of lists and dicts of plain values a copy; of what a class has under that name, only what has a copy."""

    kind: str
    value: Any = MISSING


def _then(value: Any) -> Any:
    copy = copy_of(value)
    return value if copy is MISSING else copy


class _Known(Reach):
    """The objects that code can reach while it is traced. Classes whose objects it may look at begin to tell of their reads."""

    def __init__(self, reads: Reads) -> None:
        super().__init__(known=reads.known)
        self._reads = reads

    def is_noted(self, thing: Any) -> bool:
        return self._reads.listen(type(thing))

    def module(self, module: Module, where: str, depth: int) -> None:
        self.class_(type(module), frozenset(), is_called=True)

    def class_(self, cls: type, read: frozenset[str], is_called: bool = False) -> None:
        self._reads.listen(cls)  # perhaps an object of it is made, or comes from where nobody looks
        for base in cls.__mro__:
            for found in vars(base).values() if is_users_class(base) else ():
                if hasattr(type(found), "__get__"):  # which reads of itself before anybody is told of the attribute
                    self._reads.listen(type(found))
        super().class_(cls, read, is_called)

    def changed_things(self) -> tuple[set[int], set[tuple[int, str]], set[int]]:
        """Containers, entries of dicts and cells that are not as they were: by their numbers."""
        containers = {id(thing) for _, thing, copy in self._containers if not same_items(thing, copy)}
        entries = {(id(table), name) for _, table, name, _, then in self._entries if differs(table.get(name, MISSING), then)}
        return containers, entries, {id(cell) for _, cell, then in self._cells if differs(content_of(cell), then)}


class Guards(Reach):
    """The guards of a graph besides those that Watch has on its modules."""

    def __init__(self, noted: set[type], changed: Any, without: frozenset[Any], known: Any) -> None:
        super().__init__(without, known)
        self._noted, self._changed = noted, changed
        self.modules: list[Module] = []  # which code has met, wherever they are

    def is_noted(self, thing: Any) -> bool:
        return type(thing) in self._noted

    def module(self, module: Module, where: str, depth: int) -> None:
        self.modules.append(module)
        self.class_(type(module), frozenset(), is_called=True)

    def entry(self, where: str, table: Any, name: str, content: Any) -> None:
        if (id(table), name) not in self._changed[1] and not _is_of_trace(content):
            super().entry(where, table, name, content)

    def container(self, where: str, thing: Any) -> None:
        if id(thing) not in self._changed[0]:
            super().container(where, thing)

    def take(self, where: str, this: Any, table: Any, name: str, read: Read) -> None:
        """A read of an object, of whose attributes `table` has its own; None: they are the graph's."""
        kind, then = read
        if kind == "all":
            return self._container(table, where, 0)
        place = f"{where}.{name}"
        if kind == "slot":
            now = getattr(this, name, MISSING)
            if not differs(now, then) and not _is_of_trace(then):
                self._part(place, this, lambda: getattr(this, name, MISSING), 0)
            return None
        if kind == "own":
            now = (vars(this) if table is None else table).get(name, MISSING)
            if not differs(now, then):  # else code changes it itself
                self.entry(place, table, name, now)
                self.reach(now, place.replace(".", "_"))
            return None
        if table is not None or own_table(this) is not None:
            self.entry(place, table, name, MISSING)
        self.of_class(type(this), name)
        return None

    def settle(self) -> None:
        """Last, when it is known which attributes code names: of classes themselves."""
        known = -1
        while len(self._classes) > known:
            known = len(self._classes)
            for cls in [cls for cls, is_called in self._walked if not is_called]:
                for name in sorted(self._read & {name for base in cls.__mro__ if is_users_class(base) for name in vars(base)}):
                    self.of_class(cls, name)
        self._cells = [held for held in self._cells if id(held[1]) not in self._changed[2] and not _is_of_trace(held[2])]
        self._containers = [held for held in self._containers if not any(map(_is_of_trace, _flat(held[2])))]
        self._seen = {}


class Reads:
    """The reads of one trace, on the thread that makes it: what it reads of a graph, of modules, and of objects of any
    class that can tell.

    Classes tell by a `__getattribute__` that they have meanwhile, so that reads are seen by whatever way they come, also through
    getattr(), vars() and libraries. Objects that cannot are known by the names in the code.
    REQUIRES: the tracing lock.
    """

    def __init__(self, graph: Any, owner: type, own: frozenset[str]) -> None:
        """own: names of attributes of the graph that do not count."""
        self._graph, self._owner, self._own, self._thread = graph, owner, own, threading.get_ident()
        self._objects: dict[int, Any] = {}  # in the order of their first reads; held, so that no other gets their number
        self._reads: dict[int, dict[str, Read]] = {}
        self._listening: list[tuple[type, Any]] = []
        self._noted: set[type] = set()
        self.known = (graph, Tensor, Module, owner)
        self._first: Any = _Known(self)

    def __enter__(self) -> Reads:
        for cls in (self._owner, Module):
            self._listen(cls)
        self._first.class_(type(self._graph), frozenset(), is_called=True)
        return self

    def __exit__(self, *exc: Any) -> None:
        for cls, before in reversed(self._listening):
            if before is None:
                type.__delattr__(cls, "__getattribute__")
            else:
                type.__setattr__(cls, "__getattribute__", before)

    def roots(self, things: Any) -> None:
        """Adds objects that code may reach besides."""
        for where, thing in things:
            self._first.reach(thing, where)

    def listen(self, cls: type) -> bool:
        """Whether objects of a class tell what is read of them, from now on."""
        if cls in self._noted or issubclass(cls, (Module, self._owner)):
            return True
        if not cls.__flags__ & _HEAP or cls.__flags__ & _IMMUTABLE or is_foreign(cls):
            return False
        if issubclass(cls, (Tensor, type, types.ModuleType, BaseException, threading.local)):
            return False
        if any(origin_of(base).startswith(_OF_OURS) for base in cls.__mro__) or _reads_its_own_way(cls):
            return False
        try:
            self._listen(cls)
        except TypeError:  # a class of C code that lets nobody change it
            return False
        self._noted.add(cls)
        return True

    def _listen(self, cls: type) -> None:
        before = vars(cls).get("__getattribute__")
        read, note, reads, here, get_ident = cls.__getattribute__, self._note, self._reads, self._thread, threading.get_ident
        quiet = _OURS if issubclass(cls, Module) else frozenset()
        standard = origin_of(cls).partition(".")[0] in sys.stdlib_module_names and not issubclass(cls, collections.abc.Collection)

        def told(this: Any, name: str) -> Any:
            try:
                value = read(this, name)
            except AttributeError:
                if threading.get_ident() == here and not name.startswith("__"):
                    note(this, name, MISSING)
                raise
            if name in quiet and (name in _TABLES or isinstance(value, types.MethodType)):
                return value
            known = reads.get(id(this))
            if (known is not None and name in known) or (name.startswith("__") and name != "__dict__") or get_ident() != here:
                return value
            if standard or name == "__dict__":
                # Reads by Python's own classes of themselves, and ours, are no matter of the code that uses them.
                reader = sys._getframe(1).f_code.co_filename
                if is_standard(reader) if standard else reader != "<string>" and is_ours(reader):
                    return value
            note(this, name, value)
            return value

        told._tells_reads = True  # type: ignore[attr-defined]
        type.__setattr__(cls, "__getattribute__", told)
        self._listening.append((cls, before))

    def _note(self, this: Any, name: str, value: Any) -> None:
        if this is self._graph and name in self._own:
            return
        names = self._reads.get(id(this))
        if names is None:
            names = self._reads[id(this)] = {}
            self._objects[id(this)] = this
        if name in names:
            return
        if name == "__dict__":
            if isinstance(this, (Module, self._owner)):
                return  # ours look at it
            names[name] = Read("all")
            self._first.reach(value, f"{type(this).__name__}.__dict__")
            return
        found, table = in_class(type(this), name), own_table(this)
        is_data = hasattr(type(found), "__set__")
        if isinstance(found, types.MemberDescriptorType):
            names[name] = Read("slot", value)
        elif table is not None and name in table and not is_data:
            names[name] = Read("own", _then(table[name]))
        else:
            names[name] = Read("class", MISSING if is_data or callable(found) else copy_of(found))
            for part in functions_of(found):
                self._first.function(part, name)
            if isinstance(found, types.FunctionType):
                return self._first.function(found, name)
            if found is not MISSING:
                self._first.reach(found, f"{type(this).__name__}_{name}")
        if value is not MISSING:
            self._first.reach(value, f"{type(this).__name__}.{name}")

    def of_modules(self) -> Iterator[tuple[Any, str, Read]]:
        """(module or graph, name, read)."""
        for number, names in self._reads.items():
            this = self._objects[number]
            if isinstance(this, (Module, self._owner)):
                for name, read in names.items():
                    yield this, name, read

    def changed_attributes(self) -> list[str]:
        """The attributes of objects other than modules that code has changed since it first read them."""
        found = []
        for number, names in self._reads.items():
            this = self._objects[number]
            table = own_table(this)
            if not isinstance(this, (Module, self._owner)) and sys.getrefcount(this) > 3:
                found += [f"{type(this).__name__}.{name}" for name, (kind, then) in names.items()
                          if kind == "own" and differs(table.get(name, MISSING), then)]
        return found

    def guards(self, skip: Any, names: dict[int, str], functions: Any, roots: Any) -> Guards:
        """The guards on all reads for which skip(object, name, read) is False.

        names: of objects. functions: that the plan calls, and build() does not.
        """
        changed, self._first = self._first.changed_things(), None
        self._forget_what_is_gone()
        hosts = [part for f in functions for part in (f, getattr(f, "__self__", f), getattr(f, "fn", f), getattr(f, "func", f))]
        guards = Guards(self._noted, changed, frozenset(filter(None, map(_code_of, hosts))), (*self.known, *hosts))
        for where, thing in roots:
            guards.reach(thing, where)
        for number, this in self._objects.items():
            where, table = names.get(number, type(this).__name__), None if this is self._graph else own_table(this)
            if this is not self._graph and not isinstance(this, Module):
                guards.reach(this, where)
            for name, read in self._reads[number].items():
                if not skip(this, name, read):
                    guards.take(where, this, table, name, read)
                elif isinstance(read.value, Tensor):
                    guards.reach(read.value, f"{where}.{name}")
        guards.settle()
        self._objects, self._reads = {}, {}
        return guards

    def _forget_what_is_gone(self) -> None:
        """Objects that code has made itself, and that nobody has any more: here, and in what was read of others of them."""
        known = -1
        while len(self._objects) != known:
            known = len(self._objects)
            for number in list(self._objects):
                if sys.getrefcount(self._objects[number]) <= 2:  # of the dict, and of the call
                    del self._objects[number], self._reads[number]


def _reads_its_own_way(cls: type) -> bool:
    """Whether a class of the user's has a `__getattribute__`, whose own reads nobody would be told of."""
    ways = [vars(base)["__getattribute__"] for base in cls.__mro__ if "__getattribute__" in vars(base)]
    return any(isinstance(way, types.FunctionType) and not hasattr(way, "_tells_reads") for way in ways)


def _code_of(function: Any) -> Any:
    function = getattr(function, "__func__", function)
    return getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)


def _is_of_trace(value: Any) -> bool:
    """A tensor of no step but the traced one."""
    return isinstance(value, Tensor) and value._traced


def _flat(copy: Any) -> Any:
    return copy.values() if isinstance(copy, dict) else copy if isinstance(copy, (list, set)) or hasattr(copy, "popleft") else ()
