"""What build() has read of its modules and of the tensors it captured: when that changes, the graph is traced anew."""

from __future__ import annotations

import hashlib
import operator
import threading
import types
import warnings
from contextlib import contextmanager
from typing import Any, Iterator

from sluice import _C
from sluice._C import Tensor
from sluice.nn.modules._config import ModuleConfig
from sluice.nn.modules._hooks import of_all
from sluice.nn.modules.module import Module

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_OURS = frozenset(dir(Module))
_FUNCTIONS = (types.MethodType, types.FunctionType)
_NOTHING = object()


def _in_class(cls: type, name: str) -> Any:
    """What a class or the first of its bases has under a name, as it lies there; _NOTHING: none has."""
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return _NOTHING


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, (tuple, frozenset)) and all(map(_is_plain, value)))


def _copy(value: Any) -> Any:
    """What a later value is compared with; _NOTHING: it is not watched."""
    if _is_plain(value) or isinstance(value, Tensor):
        return value
    if type(value) in (list, dict, set) and all(map(_is_plain, value.values() if isinstance(value, dict) else value)):
        return value.copy()
    return _NOTHING


def text_of(value: Any) -> str:
    """A plain value, a nest of them, or a tensor, as a text that is the same in every process; of other objects their type."""
    if isinstance(value, Tensor):
        content = hashlib.sha256(value.detach().cpu().contiguous().reshape(-1).view(_C.uint8).numpy()).hexdigest()
        return f"{value.dtype.name}{value._shape} with the content {content[:16]}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_of(k)}: {text_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = list(map(text_of, value))
        return f"{type(value).__name__}({', '.join(sorted(parts) if isinstance(value, (set, frozenset)) else parts)})"
    return repr(value) if isinstance(value, (*_PLAIN, _C.dtype)) else type(value).__name__


def _differs(now: Any, then: Any) -> bool:
    if now is then:
        return False
    if isinstance(now, Tensor) or isinstance(then, Tensor) or type(now) is not type(then):
        return True
    if isinstance(now, (float, complex)):
        return repr(now) != repr(then)  # NaN is itself, and -0.0 is not 0.0
    if isinstance(now, (list, tuple)):
        return len(now) != len(then) or any(map(_differs, now, then))
    if isinstance(now, dict):
        return list(now) != list(then) or any(_differs(value, then[key]) for key, value in now.items())
    return bool(now != then)


class Watch:
    """Of one version of a graph; traces of several plans add to it.

    Watched are: the parameters, buffers, submodules and hooks of its modules, by identity; memory (`w.data = x`) and
    requires_grad of its variables; plain attributes that build() has read, numbers, texts and lists of them, by value, unless
    build() changes them itself; methods that it has called and attributes that it has missed, by identity; hooks of all
    modules; tensors that it has captured, by identity and version. The mode (`train()`, `eval()`) stays that
    of the first call, so that two graphs of one model have a mode each; it is warned of where no graph has the other one.
    """

    def __init__(self) -> None:
        self._objects: Any = None
        self._autocast: Any = None
        self._tables: list[tuple[str, Any, tuple[Any, ...]]] = []
        self._memory: list[tuple[str, Any, int, bool]] = []
        self._taken: list[Any] = []
        self._reads: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._missed: dict[tuple[int, str], Any] = {}
        self._called: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._modes: list[tuple[str, Any, bool]] = []
        self._plain: list[tuple[str, Any, str, Any]] = []
        self._methods: list[tuple[str, Any, str, Any]] = []  # with the function, or _NOTHING
        self._by_value: list[tuple[str, Any, str, Any]] = []  # of lists, which may change, and of the graph, of which nothing is held

    @contextmanager
    def reading(self, graph: Any, owner: type, own: frozenset[str]) -> Iterator[None]:
        """Notes which attributes of the graph, an `owner`, and of modules this thread reads, but for the graph's `own`.

        REQUIRES: the tracing lock.
        """
        here, reads = threading.get_ident(), self._reads
        plain = {patched: vars(patched).get("__getattribute__") for patched in (owner, Module)}  # another's, of a graph within one
        read = plain[Module] or object.__getattribute__

        def noted(this: Any, name: str) -> Any:
            try:
                value = read(this, name)
            except AttributeError:
                if not name.startswith("__") and threading.get_ident() == here and isinstance(this, Module):
                    self._missed.setdefault((id(this), name), this)
                raise
            if not name.startswith("__") and (id(this), name) not in reads and threading.get_ident() == here:
                copy = _NOTHING if this is graph and name in own else _copy(value)
                if copy is not _NOTHING:
                    reads[id(this), name] = (None if this is graph else this), name, copy  # it holds this: no cycle
                elif isinstance(this, Module) and isinstance(value, _FUNCTIONS) and (name == "forward" or name not in _OURS):
                    self._called.setdefault((id(this), name), (this, _static(this, name)))
            return value

        for patched in plain:
            patched.__getattribute__ = noted  # type: ignore[method-assign]
        try:
            yield
        finally:
            for patched, before in plain.items():
                if before is None:
                    del patched.__getattribute__
                else:
                    patched.__getattribute__ = before  # type: ignore[method-assign]

    def saved(self, modules: Any) -> dict[str, Any]:
        """What build() has read, as texts by module and attribute (the graph itself is "")."""
        names = {id(module): name for name, module in modules}
        places = [("" if this is None else names.get(id(this)), name, value) for _, this, name, value in (*self._plain, *self._by_value)]
        return {"autocast": text_of(self._autocast),
                "reads": [[where, name, text_of(value)] for where, name, value in places if where is not None],
                "classes": [[name, type(module).__qualname__] for name, module in modules],
                "modes": [[names[id(module)], first] for _, module, first in self._modes if id(module) in names]}

    def resume(self, graph: Any, modules: Any, variables: Any, saved: dict[str, Any]) -> None:
        """As if build() had been traced here. Throws ValueError where it would do something else than what was saved."""
        there, taken = dict(modules), _C.TakenContents()
        self._begin(modules, variables)
        if text_of(self._autocast) != saved["autocast"]:
            raise _C.ValueError(f"graph '{graph.name}': its plan was made in another region of mixed precision (autocast); load it in a "
                                "region like that, or compile the graph anew")
        for where, then in saved["classes"]:
            module = there.get(where)
            if module is None or type(module).__qualname__ != then:
                now = "is not there" if module is None else f"is {type(module).__qualname__} now"
                raise _C.ValueError(f"graph '{graph.name}': {where} was {then} when its plan was made, and {now}; make it so "
                                    "again, or compile the graph anew")
        for where, name, then in saved["reads"]:
            this = there.get(where) if where else None
            value = _NOTHING if where and this is None else _copy(_attribute(this or graph, name))
            place = f"{where or type(graph).__name__}.{name}"
            if value is _NOTHING or text_of(value) != then:
                now = "there is none" if value is _NOTHING else f"it is {text_of(value)}"
                raise _C.ValueError(f"graph '{graph.name}': {place} was {then} when its plan was made, and {now}; make it so again, "
                                    "or compile the graph anew")
            self._add(place, this, name, value)
            if isinstance(value, Tensor):
                taken.add(value)
        self._taken.append(taken)
        for where, training in saved["modes"]:
            module = there.get(where)
            if module is None or module.training is not training:
                raise _C.ValueError(f"graph '{graph.name}': {where} was in {_mode(training)} mode when its plan was made, and "
                                    f"{'is not there' if module is None else 'is in ' + _mode(module.training) + ' mode'}; call "
                                    f"{'train' if training else 'eval'}() first")
            self._modes.append((where, module, training))
            ModuleConfig.of(module).modes.add(training)
        self._remember()

    def _begin(self, modules: Any, variables: Any) -> None:
        self._tables = [(f"the {table[1:]} of {name}", entries, tuple(entries.values()))
                        for name, module in modules for table, entries in vars(module).items() if table in _TABLES]
        self._tables += [("the hooks of all modules", hooks, tuple(hooks.values()))
                         for hooks in _OF_ALL]
        self._memory = [(name, tensor, tensor._impl, tensor.requires_grad) for name, tensor in variables]
        self._autocast = _C.autocast_state()
        self._plain, self._by_value, self._modes, self._methods = [], [], [], []

    def finish(self, graph: Any, modules: Any, variables: Any, captured: Any) -> None:
        """Ends a trace. modules, variables: the graph's, by name; captured: what it became."""
        self._begin(modules, variables)
        self._taken.append(captured.taken)
        names = {id(module): name for name, module in modules}
        for this, name, first in self._reads.values():
            if name == "training" and isinstance(this, Module):
                self._modes.append((names.get(id(this), type(this).__name__), this, first))
                ModuleConfig.of(this).modes.add(first)
                continue
            last = _copy(_attribute(this or graph, name))
            if last is _NOTHING or _differs(last, first):
                continue  # build() changes it itself
            where = f"{names[id(this)]}.{name}" if id(this) in names else f"{type(this or graph).__name__}.{name}"
            if not isinstance(first, Tensor) or not first._traced:  # which is of no step but the traced one
                self._add(where, this, name, first)
        seen = [*((this, name, _NOTHING) for (_, name), this in self._missed.items()),
                *((this, name, function) for (_, name), (this, function) in self._called.items())]
        self._methods = [(f"{names.get(id(this), type(this).__name__)}.{name}", this, name, then) for this, name, then in seen
                         if _static(this, name) is then and not any(name in vars(this)[table] for table in _ENTRIES)]
        self._remember()

    def _add(self, where: str, this: Any, name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            self._memory.append((where, value, value._impl, value.requires_grad))
        by_value = this is None or isinstance(value, (list, dict, set))
        (self._by_value if by_value else self._plain).append((where, this, name, value))

    def changed(self, graph: Any) -> str | None:
        """The name of something that is not as it was; None: all is."""
        if any(taken.changed() for taken in self._taken):
            return "a tensor that build() has captured"
        if _C.autocast_state() != self._autocast:
            return "the region of mixed precision (autocast) around the call"
        for where, this, name, value in self._by_value:
            if _differs(_attribute(this or graph, name), value):
                return where
        if not self._objects.hold():
            where = self._difference(graph)
            if where is not None:
                return where
            self._remember()  # other objects of the same value
        return None

    def identities(self) -> tuple[Any, list[Any]] | None:
        """(SameObjects, TakenContents) that say whether anything has changed; None where that takes more."""
        return None if self._by_value else (self._objects, self._taken)

    def _remember(self) -> None:
        read = [(this, name) for _, this, name, _ in (*self._plain, *self._methods)]
        self._objects = _C.SameObjects(
            tables=[entries for _, entries, _ in self._tables], tensors=[tensor for _, tensor, _, _ in self._memory],
            entries=[(vars(this), name) for this, name in read] + [(vars(this), "training") for _, this, _ in self._modes],
            classes=list({(type(this), name) for this, name in read if name not in vars(this)}),
            typed=list({id(this): this for this, _ in read}.values()))

    def _difference(self, graph: Any) -> str | None:
        for where, table, values in self._tables:
            if len(table) != len(values) or not all(map(operator.is_, table.values(), values)):
                return where
        for where, tensor, impl, requires_grad in self._memory:
            if tensor._impl != impl or tensor.requires_grad is not requires_grad:
                return where
        for where, this, name, value in self._plain:
            if _differs(_attribute(this, name), value):
                return where
        for where, this, name, function in self._methods:
            if _static(this, name) is not function:
                return where
        for where, module, training in self._modes:
            if module.training is not training and module.training not in ModuleConfig.of(module).modes:
                self._modes = []
                warnings.warn(f"graph '{graph.name}': {where} is in {_mode(module.training)} mode now, but the graph keeps "
                              f"the mode of its first call, {_mode(training)}; make another graph for "
                              f"{_mode(module.training)} mode", RuntimeWarning, stacklevel=5)
                break
        return None


def _mode(training: bool) -> str:
    return "training" if training else "evaluation"


def _attribute(this: Any, name: str) -> Any:
    own = vars(this)
    return own[name] if name in own else getattr(type(this), name, _NOTHING)


def _static(this: Any, name: str) -> Any:
    """As it lies in the object or in its class: a function, where reading it gives a method."""
    own = vars(this)
    return own[name] if name in own else _in_class(type(this), name)


_ENTRIES = ("_parameters", "_buffers", "_modules")
_TABLES = (*_ENTRIES, "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OF_ALL = (of_all.forward_pre, of_all.forward, of_all.backward_pre, of_all.backward)
