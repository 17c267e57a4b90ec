"""Calls of compiled code: which program fits, what is compiled, and what runs eagerly."""

from __future__ import annotations

import functools
from typing import Any

from sluice import _C
from sluice._guards.environment import Environment
from sluice._base.trace import running, tracing_lock, within
from sluice._graph import eager
from sluice.nn.modules.module import Module

from sluice._compile import debugging, guards, logs, sizes
from sluice._compile.backends import BackendError
from sluice._compile.breaks import as_break, Break, listing, warn
from sluice._compile.nests import Arguments
from sluice._compile.program import Program
from sluice._compile.report import Counter


class Children:
    """The modules of a region that has a break, each compiled by itself when it is first called."""

    def __init__(self, region: Region, modules: list[Module], outer: Any) -> None:
        self._modules = {id(m): m for m in modules if m is not region.function}
        self._regions: dict[int, Region] = {}
        self._settings, self._counter, self._outer, self._region = region.settings, region.counter, outer, region

    def get(self, module: Module) -> Region | None:
        number = id(module)
        if number not in self._modules:
            return self._outer.get(module) if self._outer is not None else None
        found = self._regions.get(number)
        if found is None:
            found = Region(module, self._settings, self._counter, inside=True)
            found = self._regions.setdefault(number, found)
        return found

    def regions(self) -> list[Region]:
        return list(self._regions.values())


class Region:
    """One function or module with its programs.

    inside: Module.__call__ calls it, so that a `__call__` of the module's own class has run already.

    Thread safety: all. One thread at a time compiles.
    """

    def __init__(self, function: Any, settings: Any, counter: Counter | None = None, inside: bool = False) -> None:
        self.function, self.settings = function, settings
        self.is_module = isinstance(function, Module)
        self.name = _name_of(function)
        self.counter = counter if counter is not None else Counter()
        own = self.is_module and type(function).__call__ is not Module.__call__
        self.traced = functools.partial(Module.__call__, function) if own and inside else function
        self._eager = function._call_impl if self.is_module and (inside or not own) else function
        self.asked: dict[str, Any] = {}
        self.forget()

    def forget(self) -> None:
        """Lets go of everything that was compiled."""
        self.programs: dict[Any, list[Program]] = {}
        self.breaks: list[Break] = []
        self._broken: dict[Any, Break] = {}
        self._limited: dict[Any, Any] = {}  # keys of calls that are not compiled, with the objects that they name
        self.children: Children | None = None
        self.modules: list[Module] = []
        self._warned = False
        self.sizes = sizes.Sizes(self.settings)
        self._last: Any = None
        self._bound: Any = None  # of the program that ran last

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # The short way: the program that ran last looks at its guards in C++, and runs if they hold. All else is for
        # calls that it does not fit.
        bound = self._bound
        if bound is not None and not kwargs and not eager.is_eager() and not guards.is_disabled():
            made = bound(args)
            if made is not None:
                self.counter.count("calls")
                return made
        if _C.is_tracing() or self.settings.backend == "eager" or eager.is_eager() or guards.is_disabled():
            return self._eager(*args, **kwargs)
        self.counter.count("calls")
        try:
            arguments = Arguments(args, kwargs)
        except Break as found:
            return self._broke(found, None, args, kwargs)
        fitted = self.sizes.fitted(arguments, self.modules)
        key = guards.key_of(fitted, self.modules)
        for program in self.programs.get(key, ()):
            if program.changed() is None:
                return self._ran(program, fitted, args, kwargs)
        if key in self._limited:
            return self._limited_call(args, kwargs)
        if key in self._broken:
            return self._run_eagerly(args, kwargs)
        return self._missed(arguments, args, kwargs)

    def _missed(self, arguments: Arguments, args: Any, kwargs: Any) -> Any:
        # Everything is looked at again under the lock, because another thread may have compiled this very call
        # meanwhile.
        with tracing_lock:
            environment = Environment(self.function, arguments.objects)
            self.modules = [m for module in environment.modules.values() for m in module.modules()]
            self.sizes.seen(arguments, self, environment)
            fitted = self.sizes.fitted(arguments, self.modules)
            key = guards.key_of(fitted, self.modules)
            program = next((p for p in self.programs.get(key, ()) if p.changed() is None), None)
            found = self._broken.get(key)
            if program is None and found is None:
                if self._is_full(key, fitted):
                    self._limited[key] = fitted.objects
                # Filled-up rows would give other results than the code itself: one graph for all these sizes is refused from
                # now on, and the call is looked at anew.
                elif not self.sizes.check(self, fitted):
                    return self._missed(arguments, args, kwargs)
                else:
                    program, found = self._compiled_or_broken(key, fitted, environment)
        if program is None and found is None:
            return self._limited_call(args, kwargs)
        if program is None:
            assert found is not None
            return self._broke(found, key, args, kwargs)
        return self._ran(program, fitted, args, kwargs)

    def _compiled_or_broken(self, key: Any, fitted: Any, environment: Environment) -> tuple[Program | None, Break | None]:
        self._log_recompile(key, fitted)
        try:
            return self._compiled(key, fitted, environment), None
        except BackendError:
            raise
        except Exception as error:
            # Whatever fails while tracing is a break, and the code runs eagerly: if the fault is the code's own, it
            # fails there again, with the traceback that its author expects.
            found = as_break(error)
            if self.settings.fullgraph and found.kind == "error":
                raise  # what the code itself raises
            return None, found

    def _limited_call(self, args: Any, kwargs: Any) -> Any:
        """Calls a function that is compiled no more."""
        self.counter.count("eager_calls")
        self.counter.count("limits")
        return self._eager(*args, **kwargs)

    def _ran(self, program: Program, fitted: Any, args: Any, kwargs: Any) -> Any:
        # The plan computes as if the memory that it writes were in nobody else's hands.
        if program.writes_to_shared(fitted.tensors):
            return self._run_eagerly(args, kwargs)
        if self.settings.backend == "debug":
            return debugging.compared(self, program, fitted)
        result = program(fitted)
        if program.bound is None or program.bound is self._bound:  # it is the program, but something is another object
            program.bind(fitted, self.modules)
        self._bound = program.bound
        return result

    def _compiled(self, key: Any, fitted: Any, environment: Environment) -> Program:
        program = Program(self.name, self.traced, fitted, environment, self.settings, self.counter)
        program.key, program.group = key, fitted.group
        self.counter.count("plans")
        if not self._has_group(fitted):
            self.counter.count("compiles")
            if self._last is not None:
                self.counter.count("recompiles")
        self._last = key, fitted
        self.programs.setdefault(key, []).append(program)
        logs.say("graph", f"'{self.name}':\n{program.text()}")
        logs.say("fusion", f"'{self.name}': passes that changed it: {', '.join(program.passes()) or 'none'}")
        logs.say("guards", f"'{self.name}': " + "; ".join(guards.described(program)))
        logs.say("perf", f"'{self.name}': traced and compiled in {program.seconds:.3f} s")
        return program

    def _log_recompile(self, key: Any, fitted: Any) -> None:
        if self._last is not None and logs.topics():
            logs.say("recompiles", f"'{self.name}': {guards.difference(self._last, (key, fitted), self.programs.get(key, []))}")

    def _has_group(self, fitted: Any) -> bool:
        """Another size of what is compiled already."""
        return fitted.group is not None and any(p.group is fitted.group for of_key in self.programs.values() for p in of_key)

    def run_plainly(self, *args: Any, **kwargs: Any) -> Any:
        """The code itself, with nothing in it compiled."""
        with guards.disabled():
            return self._eager(*args, **kwargs)

    def _is_full(self, key: Any, fitted: Any) -> bool:
        """Whether nothing more is compiled; it warns once."""
        limit = self.settings.options["recompile_limit"]
        for programs in self.programs.values():
            # Programs of objects that are gone can never be called again, and do not count.
            programs[:] = [p for p in programs if not p.is_stale()]
        owners = frozenset(id(o) for o in fitted.objects if isinstance(o, Module))  # a method has programs for each instance
        there = self.sizes.count(self.programs, owners) + len(self._broken)
        if there < limit or self._has_group(fitted):
            return False
        if len(self._limited) >= _MOST_LIMITED:
            self._limited.clear()
        if not self._warned:
            self._warned = True
            why = guards.difference(self._last, (key, fitted), self.programs.get(key, [])) if self._last else ""
            warn(f"compile: recompile_limit: '{self.name}' was compiled {there} times; other calls run eagerly from now on. The "
                          f"last guard that failed: {why}. Pass dynamic=True for sizes, or options={{'recompile_limit': n}}")
        return True

    def _broke(self, found: Break, key: Any, args: Any, kwargs: Any) -> Any:
        if self.settings.fullgraph:
            where = f"{found.place}: " if found.place else ""
            raise _C.RuntimeError(f"compile: fullgraph=True: '{self.name}' is not one graph: {where}{found.reason}; take it out of the "
                                  "function, or leave out fullgraph") from found
        result = self._run_eagerly(args, kwargs, found)  # raises what the code itself raises: that is no break
        if key is not None:
            self._broken[key] = found
        return result

    def _run_eagerly(self, args: Any, kwargs: Any, found: Break | None = None) -> Any:
        self.counter.count("eager_calls")
        # While the code runs eagerly, the modules that it calls are compiled: that is how a break costs only its own
        # surroundings.
        outer = running.now.regions
        if self.children is None:
            self.children = Children(self, self.modules, outer)
        with within(regions=self.children):
            if found is None:
                return self._eager(*args, **kwargs)
            listed: list[Break] = []
            with listing(listed):
                result = self._eager(*args, **kwargs)
        self._note(listed, found)
        return result

    def _note(self, listed: list[Break], found: Break) -> None:
        """Every place that the first eager run has found, and one warning."""
        for b in (found, *listed):
            if not any(b.place == other.place and (b.place or b.reason == other.reason) for other in self.breaks):
                self.breaks.append(b)
                logs.say("recompiles", f"'{self.name}': break: {b}")
        self.counter.count("breaks")
        if (found.place or found.reason) not in self.counter.warned:
            self.counter.warned.add(found.place or found.reason)
            where = f"{found.place}: " if found.place else ""
            warn(f"compile: '{self.name}' has a graph break and runs eagerly, what it calls is compiled: {where}{found.reason}")

    def all_programs(self) -> list[Program]:
        own = [p for programs in self.programs.values() for p in programs]
        return own + [p for r in (self.children.regions() if self.children else ()) for p in r.all_programs()]

    def all_breaks(self) -> list[Break]:
        return self.breaks + [b for r in (self.children.regions() if self.children else ()) for b in r.all_breaks()]


_MOST_LIMITED = 1024


def _name_of(function: Any) -> str:
    if isinstance(function, Module):
        return type(function).__name__
    return getattr(function, "__name__", None) or type(function).__name__
