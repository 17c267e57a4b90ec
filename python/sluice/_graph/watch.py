"""Watches what build() has read of its modules and of the tensors it captured: when that changes, the graph is traced anew."""

from __future__ import annotations

import operator
import warnings
from contextlib import contextmanager
from typing import Any, Iterator

from sluice import _C
from sluice._C import Tensor
from sluice._base.parts import has_parts, is_dense
from sluice._guards.environment import Environment
from sluice._guards.reads import Guards, Reads
from sluice._guards.values import copy_of, ENTRIES, MISSING, text_of, values_differ
from sluice.nn.modules._config import ModuleConfig
from sluice.nn.modules._hooks import of_all
from sluice.nn.modules.module import Module

_OURS = frozenset(dir(Module)) - {"forward"}


class Watch:
    """The watch of one version of a graph; traces of several plans add to it.

    Watched are: the parameters, buffers, submodules and hooks of its modules, by identity; memory (`w.data = x`) and
    requires_grad of its variables; attributes of modules that build() has read, numbers, texts and lists of them, by value, unless
    build() changes them itself, and that there is none where it has met none, or a registered member; hooks of all
    modules; tensors that it has captured, by identity and version; and all else that it has read (`sluice._guards`): other
    objects and their classes, lists and dicts, globals, closures, functions. The mode (`train()`, `eval()`) stays that
    of the first call, so that two graphs of one model have a mode each; it is warned of where no graph has the other one.
    """

    def __init__(self) -> None:
        self._objects: Any = None
        self._autocast: Any = None
        self._tables: list[tuple[str, Any, tuple[Any, ...]]] = []
        self._memory: list[tuple[str, Any, int, bool]] = []
        self._taken: list[Any] = []
        self._read: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._modes: list[tuple[str, Any, bool]] = []
        self._plain: list[tuple[str, Any, str, Any]] = []  # with None in place of the graph, of which nothing is held
        self._guards: list[Any] = []  # Held
        self._reads: Any = None  # of the last trace
        self._roots: list[tuple[str, Any]] = []
        self._other: Any = None
        self._of_owner: frozenset[str] = frozenset()
        self._with_parts: list[Any] = []  # of the guards, those at which Python has to look
        self.effects: list[str] = []  # what code has changed of objects, where somebody wants to know

    @contextmanager
    def reading(self, graph: Any, owner: type, own: frozenset[str], modules: Any, other: Any = None) -> Iterator[None]:
        """Notes what this thread reads of the graph, an `owner`, but for its `own` attributes, of modules, and of objects that they reach.

        other: guards (Reach) that somebody has besides, of the code that build() calls. REQUIRES: the tracing lock.
        """
        self._reads, self._other = Reads(graph, owner, own), other
        self._of_owner = frozenset(dir(owner)) - (frozenset() if other is not None else {"build"})
        self._roots = list(modules)
        self._roots += [(f"a hook of {name}", hook) for name, module in self._roots for table in _HOOKS
                        for hook in vars(module)[table].values()]
        self._roots += [("a hook of all modules", hook) for hooks in _OF_ALL for hook in hooks.values()]
        try:
            with self._reads:
                self._reads.roots(self._roots)
                for cls in other.classes() if other is not None else ():
                    self._reads.listen(cls)
                yield
        except BaseException:
            self._reads, self._roots = None, []
            raise

    def saved(self, modules: Any) -> dict[str, Any]:
        """The values that build() has read, as texts by module and attribute (the graph itself is "")."""
        names = {id(module): name for name, module in modules}
        places = [("" if this is None else names.get(id(this)), name, value) for _, this, name, value in self._plain]
        return {"autocast": text_of(self._autocast),
                "reads": [[where, name, text_of(value)] for where, name, value in places if where is not None],
                "others": sorted({(name, text) for guards in self._guards for name, texts in guards.texts().items() for text in texts}),
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
            value = MISSING if where and this is None else copy_of(_attribute(_who(this, graph), name))
            place = f"{where or type(graph).__name__}.{name}"
            if value is MISSING or text_of(value) != then:
                now = "there is none" if value is MISSING else f"it is {text_of(value)}"
                raise _C.ValueError(f"graph '{graph.name}': {place} was {then} when its plan was made, and {now}; make it so again, "
                                    "or compile the graph anew")
            self._add(place, this, name, value)
            if is_dense(value):
                taken.add(value)
        self._taken.append(taken)
        self._resume_others(graph, there, saved["others"])
        for where, training in saved["modes"]:
            module = there.get(where)
            if module is None or module.training is not training:
                raise _C.ValueError(f"graph '{graph.name}': {where} was in {_mode(training)} mode when its plan was made, and "
                                    f"{'is not there' if module is None else 'is in ' + _mode(module.training) + ' mode'}; call "
                                    f"{'train' if training else 'eval'}() first")
            self._modes.append((where, module, training))
            ModuleConfig.of(module).modes.add(training)
        self._remember(graph)

    def _resume_others(self, graph: Any, modules: dict[str, Any], saved: Any) -> None:
        """Guards that its code says there are, in place of those that a trace finds."""
        environment = Environment(type(graph).build, list(modules.values()), known=(graph,))
        environment.of_graph(graph, frozenset(name for _, this, name, _ in self._plain if this is None) | graph._own)
        now = environment.texts()
        for name, then in saved:
            if name in now and then not in now[name]:
                raise _C.ValueError(f"graph '{graph.name}': {name} was {then} when its plan was made, and it is "
                                    f"{' or '.join(sorted(now[name]))}; make it so again, or compile the graph anew")
        self._guards = [environment]

    def _begin(self, modules: Any, variables: Any) -> None:
        self._tables = [(f"the {table[1:]} of {name}", entries, tuple(entries.values()))
                        for name, module in modules for table, entries in vars(module).items() if table in _TABLES]
        self._tables += [("the hooks of all modules", hooks, tuple(hooks.values()))
                         for hooks in _OF_ALL]
        self._memory = [(name, tensor, tensor._impl, tensor.requires_grad) for name, tensor in variables]
        self._autocast = _C.autocast_state()
        self._plain, self._modes = [], []

    def finish(self, graph: Any, modules: Any, variables: Any, captured: Any, functions: Any) -> None:
        """Ends a trace. modules, variables: the graph's, by name; captured: what it became; functions: of its host streams, by name."""
        self._begin(modules, variables)
        self._taken.append(captured.taken)
        names = {id(module): name for name, module in modules}
        for this, name, read in self._reads.of_modules():
            if read.kind in ("own", "class") and copy_of(read.value) is not MISSING:
                self._read.setdefault((id(this), name), (None if this is graph else this, name, read.value))
        self.effects = self._reads.changed_attributes() if self._other is not None else []
        for this, name, first in self._read.values():
            if name == "training" and isinstance(this, Module):
                self._modes.append((names.get(id(this), type(this).__name__), this, first))
                ModuleConfig.of(this).modes.add(first)
                continue
            last = copy_of(_attribute(_who(this, graph), name))
            if last is MISSING or values_differ(last, first):
                continue  # build() changes it itself
            where = f"{names[id(this)]}.{name}" if id(this) in names else f"{type(_who(this, graph)).__name__}.{name}"
            if not isinstance(first, Tensor) or not first._traced:  # which is of no step but the traced one
                self._add(where, this, name, first)
        for where, module in modules:
            for name, buffer in module._buffers.items():
                for part, t in buffer._to_parts()[0].items() if has_parts(buffer) else ():
                    self._add(f"{where}.{name}.{part}", buffer, part, t)
        for guards in self._guards:
            guards.drop_changed(vars(graph))
        self._add_guards(self._reads.guards(self._is_known_of(graph), names, functions.values(), self._roots), names)
        self._reads, self._roots = None, []
        self._remember(graph)

    def _is_known_of(self, graph: Any) -> Any:
        def known(this: Any, name: str, read: Any) -> bool:
            """Whether the guards need not look at a read."""
            if (id(this), name) in self._read:
                return True
            if this is graph:
                return read.kind == "class" and name in self._of_owner
            return isinstance(this, Module) and (name in _TABLES or (read.kind == "class" and name in _OURS))

        return known

    def _add_guards(self, guards: Guards, names: dict[int, str]) -> None:
        for held in (*self._guards, self._other):
            if held is not None:
                guards.drop_what(held)
        self._guards.append(guards)
        for module in guards.modules:  # of which the graph does not know
            if id(module) not in names:
                self._tables += [(f"the {table[1:]} of {type(module).__name__}", vars(module)[table], tuple(vars(module)[table].values()))
                                 for table in _TABLES]
        known = {id(tensor) for _, tensor, _, _ in self._memory}
        self._memory += [(where, tensor, tensor._impl, tensor.requires_grad) for where, tensor in guards.tensors.items()
                         if id(tensor) not in known and not tensor._traced]

    def _add(self, where: str, this: Any, name: str, value: Any) -> None:
        if is_dense(value):
            self._memory.append((where, value, value._impl, value.requires_grad))
        self._plain.append((where, this, name, value))

    def changed(self, graph: Any) -> str | None:
        """The name of something that is not as it was; None: all is."""
        for taken in self._taken:
            if taken.changed():
                return "a tensor that build() has captured"
        if _C.autocast_state() != self._autocast:
            return "the region of mixed precision (autocast) around the call"
        if not self._objects.hold(vars(graph)):
            where = self._difference(graph)
            if where is not None:
                return where
            self._remember(graph)  # other objects of the same value
        return next((where for guards in self._with_parts if (where := guards.difference_of_parts())), None) if self._with_parts else None

    def identities(self) -> tuple[Any, list[Any]] | None:
        """(SameObjects, TakenContents) that say whether anything has changed; None where that takes more."""
        own = any(this is None for _, this, _, _ in self._plain) or any(guards.has_own() for guards in self._guards)
        return None if own or self._with_parts else (self._objects, self._taken)

    def _remember(self, graph: Any) -> None:
        read = [(_who(this, graph), name) for _, this, name, _ in self._plain]
        of_guards = [guards.objects(vars(graph)) for guards in self._guards]
        more = {kind: [thing for objects in of_guards for thing in objects[kind]] for kind in
                ("entries", "cells", "classes", "typed", "functions", "containers")}
        values = [_attribute(_who(this, graph), name) for _, this, name, _ in self._plain]
        self._with_parts = [guards for guards in self._guards if guards.has_parts()]
        entries = [(None if this is None else vars(this), name) for _, this, name, _ in self._plain] + more["entries"]
        entries += [(vars(this), "training") for _, this, _ in self._modes]
        self._objects = _C.SameObjects(
            tables=[entries for _, entries, _ in self._tables], tensors=[tensor for _, tensor, _, _ in self._memory],
            entries=sorted(entries, key=lambda entry: id(entry[0])),  # what lies together is looked at together
            classes=list({(type(this), name) for this, name in read if name not in vars(this)} | set(more["classes"])),
            typed=list({id(this): this for this in (*(this for this, _ in read if this is not graph), *more["typed"])}.values()),
            cells=more["cells"], functions=more["functions"], own=vars(graph),
            containers=[value for value in values if isinstance(value, (list, dict, set))] + more["containers"])

    def _difference(self, graph: Any) -> str | None:
        for where, table, values in self._tables:
            if len(table) != len(values) or not all(map(operator.is_, table.values(), values)):
                return where
        for where, tensor, impl, requires_grad in self._memory:
            if tensor._impl != impl or tensor.requires_grad is not requires_grad:
                return where
        for where, this, name, value in self._plain:
            if values_differ(_attribute(_who(this, graph), name), value):
                return where
        for guards in self._guards:
            where = guards.difference(vars(graph))
            if where is not None:
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


def _who(this: Any, graph: Any) -> Any:
    return graph if this is None else this  # modules may be empty, and false


def _attribute(this: Any, name: str) -> Any:
    own = vars(this)
    return own[name] if name in own else getattr(type(this), name, MISSING)


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_TABLES = (*ENTRIES, *_HOOKS)
_OF_ALL = (of_all.forward_pre, of_all.forward, of_all.backward_pre, of_all.backward)
