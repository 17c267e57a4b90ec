"""The optimizers of a graph and their schedules: what of them is in its plan, and whether that is so still."""

from __future__ import annotations

import itertools
from typing import Any, Iterator

import sluice
from sluice import _C
from sluice._C import Tensor
from sluice._host_function import Generated
from sluice._trace import module_scope, state as trace_state


class Updates:
    """(optimizer, schedule) of each. Schedules that wait for a metric are stepped from outside, and are not kept here."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []
        self._compiled: list[_Compiled] = []

    def add(self, optim: Any, lr_sch: Any, is_sparse: Any) -> None:
        optimizers, schedulers = sluice.optim, sluice.optim.lr_scheduler
        if not isinstance(optim, optimizers.Optimizer):
            raise TypeError(f"add_optimizer: got {type(optim).__name__}; expected an optimizer")
        if type(optim)._update is optimizers.Optimizer._update:
            raise NotImplementedError(f"add_optimizer: {type(optim).__name__} has a step() of its own, which is Python's to run; call "
                                      "step() outside of the graph, or define _init_state() and _update() instead")
        if is_sparse:
            raise NotImplementedError("add_optimizer: is_sparse=True: gradients are dense; LazyAdam leaves rows alone that have none")
        if lr_sch is not None and not isinstance(lr_sch, schedulers.LRScheduler):
            raise TypeError(f"add_optimizer: lr_sch is {type(lr_sch).__name__}; expected a schedule of sluice.optim.lr_scheduler")
        if lr_sch is not None and lr_sch.optimizer is not optim:
            raise ValueError(f"add_optimizer: lr_sch is a {type(lr_sch).__name__} of another optimizer")
        if any(optim is other for other, _ in self.pairs):
            raise ValueError(f"add_optimizer: the graph has this {type(optim).__name__} already; join schedules in a ChainedScheduler")
        self.pairs.append((optim, None if isinstance(lr_sch, schedulers.ReduceLROnPlateau) else lr_sch))

    def prepare(self, zero: Any) -> None:
        """Makes all state, before it is traced."""
        for optim, lr_sch in self.pairs:
            optim.init_state()
            if zero is not None:
                zero.lay(optim)
            if lr_sch is not None:
                _plan_of(lr_sch).refresh(calling=False)
            groups = optim.param_groups
            optim.numbers.refresh(groups, optim.numbers.variables(groups))

    def variables(self, blocks: Any) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of the state of optimizers, hyperparameters that are variables, and counters of schedules."""
        known = {id(t): n for block, m in blocks.items() for n, t in m.named_parameters(prefix=block)}
        seen: set[int] = set()
        for i, (optim, lr_sch) in enumerate(self.pairs):
            owner, number = f"optimizer{i}", itertools.count()
            for group in optim.param_groups:
                for p in group["params"]:
                    name = known.get(id(p)) or f"param{next(number)}"
                    if id(p) not in known:
                        yield f"{owner}.{name}", p
                    for key, value in optim.state[p].items():
                        if isinstance(value, Tensor):
                            yield f"{owner}.{name}.{key}", value
            for index, path in sorted(optim.numbers.variables(optim.param_groups)):
                tensor = optim.numbers.tensor(optim.param_groups, index, path)
                if id(tensor) not in seen:  # one may be the hyperparameter of several groups
                    seen.add(id(tensor))
                    yield f"{owner}.{path}{index}", tensor
            if lr_sch is not None:
                for name, counter in _plan_of(lr_sch).variables():
                    yield f"{owner}.{name}", counter

    def trace(self) -> None:
        """The steps that build() has not made itself."""
        for i, (optim, lr_sch) in enumerate(self.pairs):
            with module_scope(f"optimizer{i}"):
                if not _contains(trace_state.stepped, optim):
                    optim.step_in_plan()
                if lr_sch is not None and not _contains(trace_state.stepped, lr_sch):
                    _plan_of(lr_sch).trace()
        self._compiled = [_Compiled(optim, lr_sch) for optim, lr_sch in self.pairs]

    def refresh(self) -> str | None:
        """Before a call: what was set by hand reaches the plan. Says what a plan that is there cannot follow."""
        for i, compiled in enumerate(self._compiled):
            change = compiled.change()
            if change is not None:
                return f"of optimizer {i} ({type(compiled.optim).__name__}), {change}"
        for optim, lr_sch in self.pairs:
            optim.numbers.refresh(optim._groups)
            if lr_sch is not None:
                _plan_of(lr_sch).refresh(calling=True)
            optim._opt_called = True
        return None


class _Compiled:
    """What plans have of an optimizer and its schedule as constants, and which tensors are their variables."""

    def __init__(self, optim: Any, lr_sch: Any) -> None:
        self.optim, self._lr_sch = optim, lr_sch
        self._params = [list(group["params"]) for group in optim._groups]
        self._state = [(p, optim.state[p], dict(optim.state[p])) for p in itertools.chain(*self._params) if p in optim.state]
        self._variables = optim.numbers.variables(optim._groups)
        self._tensors = {place: optim.numbers.tensor(optim._groups, *place) for place in self._variables}
        self._constants = self._constants_now()
        self._schedule = lr_sch and _schedule_constants(lr_sch)

    def _constants_now(self) -> Any:
        return self.optim.numbers.constants(self.optim._groups, self.optim.defaults, self._variables, self._lr_sch is not None)

    def change(self) -> str | None:
        """What is not as it was, for people; numbers that are others now are variables from then on."""
        optim = self.optim
        groups = optim._groups
        if len(groups) != len(self._params):
            return f"the number of parameter groups: {len(self._params)} were compiled, and there are {len(groups)}"
        for i, (group, params) in enumerate(zip(groups, self._params)):
            if len(params) != len(group["params"]) or any(a is not b for a, b in zip(params, group["params"])):
                return f"the parameters of group {i}"
        for p, state, tensors in self._state:
            if optim.state.get(p) is not state or len(state) != len(tensors) or any(state.get(k) is not t for k, t in tensors.items()):
                return "its state: it was cleared or replaced"
        changes = [(i, path, was, now.get(path)) for i, (old, now) in enumerate(zip(self._constants, self._constants_now()))
                   for path, was in old.items() if not _same(was, now.get(path))]
        for i, path, was, is_now in changes:
            optim.numbers.vary(i, path, was, is_now, optim.defaults, optim.structural)
        if changes:
            i, path, was, is_now = changes[0]
            return f"{path} of parameter group {i}: {was!r} was compiled, and it is {is_now!r}"
        for place, tensor in self._tensors.items():
            if optim.numbers.tensor(groups, *place) is not tensor:
                return f"{place[1]} of parameter group {place[0]}, which is another tensor"
        if self._lr_sch is not None and self._schedule != _schedule_constants(self._lr_sch):
            return f"attributes of its schedule ({type(self._lr_sch).__name__})"
        return None


def _same(a: Any, b: Any) -> bool:
    return a is b if isinstance(a, Tensor) or isinstance(b, Tensor) else type(a) is type(b) and a == b or a == b and a is not None


def _contains(items: Any, wanted: Any) -> bool:
    return any(item is wanted for item in items)


def _plan_of(lr_sch: Any) -> Any:
    from sluice.optim.lr_scheduler.plan import in_plan

    return in_plan(lr_sch)


def _schedule_constants(lr_sch: Any) -> Any:
    from sluice.optim.lr_scheduler.plan import constants

    return constants(lr_sch)


def check_can_compile_again(graph: str, functions: Any, what: str) -> None:
    """Raises where compiling again would not be as if nothing had happened."""
    if any(isinstance(function, Generated) for function in functions.values()):
        raise _C.RuntimeError(f"graph '{graph}': what its plan has as a constant was changed after it was compiled: {what}; to follow, the "
                              "graph would be compiled again, and its generator of data begin anew: set it before the first call")
