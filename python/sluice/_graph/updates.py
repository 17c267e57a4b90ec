"""The optimizers of a graph and their schedules: what of them is in its plan, and whether that is so still."""

from __future__ import annotations

import itertools
import operator
from typing import Any, Iterator

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.host_function import Generated
from sluice._base.trace import module_scope, running
from sluice.amp.grad_scaler import GradScaler
from sluice.amp.in_graph import Scaling
from sluice._graph import sparse
from sluice._graph.watch import text_of
from sluice.optim.lr_scheduler.base import LRScheduler
from sluice.optim.lr_scheduler.plan import in_plan
from sluice.optim.lr_scheduler.plateau import ReduceLROnPlateau
from sluice.optim.optimizer import Optimizer


class Updates:
    """(optimizer, schedule) of each. Schedules that wait for a metric are stepped from outside, and are not kept here."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []
        self._sparse: list[Any] = []
        self.scaler: Any = None  # amp.GradScaler
        self._compiled: list[_Compiled] = []
        self._scaler_then: Any = None

    def add(self, optim: Any, lr_sch: Any, is_sparse: Any) -> None:
        if not isinstance(optim, Optimizer):
            raise TypeError(f"add_optimizer: got {type(optim).__name__}; expected an optimizer")
        if type(optim)._update is Optimizer._update:
            raise NotImplementedError(f"add_optimizer: {type(optim).__name__} has a step() of its own, which only Python "
                                      "can run; call step() outside of the graph, or define _init_state() and _update() "
                                      "instead")
        if is_sparse:
            sparse.check(optim)
        if lr_sch is not None and not isinstance(lr_sch, LRScheduler):
            raise TypeError(f"add_optimizer: lr_sch is {type(lr_sch).__name__}; expected a schedule of "
                            "sluice.optim.lr_scheduler")
        if lr_sch is not None and lr_sch.optimizer is not optim:
            raise ValueError(f"add_optimizer: lr_sch is a {type(lr_sch).__name__} of another optimizer")
        if any(optim is other for other, _ in self.pairs):
            raise ValueError(f"add_optimizer: the graph has this {type(optim).__name__} already; to use several schedules, "
                             "join them in a ChainedScheduler")
        if is_sparse:
            self._sparse.append(optim)
        self.pairs.append((optim, None if isinstance(lr_sch, ReduceLROnPlateau) else lr_sch))

    def set_scaler(self, scaler: Any) -> None:
        if not isinstance(scaler, GradScaler):
            raise TypeError(f"set_grad_scaler: got {type(scaler).__name__}; expected a sluice.amp.GradScaler")
        self.scaler = scaler

    def tables(self, batches: int) -> Any:
        """The tables of a run of build(); None where no optimizer is sparse."""
        if not self._sparse:
            return None
        if batches > 1 or self.scaling() is not None:
            raise NotImplementedError("add_optimizer: is_sparse=True with micro-batches or a gradient scaler is not supported; use "
                                      "is_sparse=False")
        for optim in self._sparse:
            sparse.check(optim)
        return sparse.Tables(self._sparse)

    def scaling(self) -> Scaling | None:
        """The scaling of a run of build()."""
        return Scaling(self.scaler) if self.scaler is not None and self.scaler.is_enabled() else None

    def prepare(self, zero: Any) -> None:
        """Makes all state, before it is traced."""
        for optim, lr_sch in self.pairs:
            # To read param_groups here forgets the driver, which the call under way still needs.
            driver = optim._driver  # of a call under way, which needs a plan of another shape
            optim.init_state()
            if zero is not None:
                zero.lay(optim)
            if lr_sch is not None:
                in_plan(lr_sch).refresh()
            groups = optim.param_groups
            optim.numbers.refresh(groups, optim.numbers.variables(groups))
            optim._driver = driver

    def variables(self, blocks: Any) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of the state of optimizers, hyperparameters that are variables, and counters of schedules."""
        if self.scaling() is not None:
            yield from zip(("grad_scaler.scale", "grad_scaler.growth_tracker"), self.scaler.tensors())
        known = {id(t): n for block, m in blocks.items() for n, t in m.named_parameters(prefix=block)}
        # Names begin with the number of the optimizer, since two optimizers may have state of one name for the same
        # parameter.
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
                for name, counter in in_plan(lr_sch).variables():
                    yield f"{owner}.{name}", counter

    def trace(self) -> None:
        """The steps that build() has not made itself."""
        for i, (optim, lr_sch) in enumerate(self.pairs):
            with module_scope(f"optimizer{i}"):
                if not _contains(running.now.stepped, optim):
                    optim.step_in_plan()
                if lr_sch is not None and not _contains(running.now.stepped, lr_sch):
                    in_plan(lr_sch).trace()
        if running.now.scaling is not None:
            with module_scope("grad_scaler"):
                running.now.scaling.finish()
        self._remember()

    def _remember(self) -> None:
        self._scaler_then = self.scaler and self.scaler.constants()
        self._compiled = [_Compiled(optim, lr_sch) for optim, lr_sch in self.pairs]

    def saved(self) -> dict[str, str]:
        """The constants that the plan has of them, as texts by what they are."""
        texts = {} if self.scaler is None else {"the gradient scaler": text_of(self._scaler_then)}
        for i, compiled in enumerate(self._compiled):
            texts.update((f"{what} of optimizer {i}", text) for what, text in compiled.texts())
        return texts

    def resume(self, graph: str, saved: dict[str, str]) -> None:
        """As if build() had been traced here. REQUIRES: prepare(). Throws ValueError where a plan would have other constants than saved."""
        self._remember()
        now = self.saved()
        for what in (*saved, *now):
            if saved.get(what) != now.get(what):
                raise _C.ValueError(f"graph '{graph}': {what}: {saved.get(what, 'none')} when its plan was made; it is "
                                    f"{now.get(what, 'none')} now: make it so again, or compile the graph anew")

    def refresh(self) -> str | None:
        """Before a call: what was set by hand reaches the plan. Says what a plan that is there cannot follow."""
        if self.scaler is not None and self.scaler.constants() != self._scaler_then:
            return "of the settings of the gradient scaler"
        for i, compiled in enumerate(self._compiled):
            change = compiled.refresh()
            if change is not None:
                return f"of optimizer {i} ({type(compiled.optim).__name__}), {change}"
        for compiled in self._compiled:
            compiled.begin_call()
        return None


class _Compiled:
    """The constants that plans have of an optimizer and its schedule, and the tensors that are their variables."""

    def __init__(self, optim: Any, lr_sch: Any) -> None:
        self.optim, self._schedule = optim, lr_sch and in_plan(lr_sch)
        groups = optim._groups
        self._params = [list(group["params"]) for group in groups]
        self._state = list(optim.state.values())
        self._tensors = [(state, list(state.values())) for state in self._state]
        self._variables = {place: optim.numbers.tensor(groups, *place) for place in optim.numbers.variables(groups)}
        self._constants = self._constants_now()
        self._of_schedule = self._schedule and self._schedule.constants()
        self._watch()

    def texts(self) -> Iterator[tuple[str, str]]:
        yield "the class", type(self.optim).__name__
        for i, constants in enumerate(self._constants):
            yield from ((f"{path} of parameter group {i}", text_of(value)) for path, value in constants.items())
        if self._schedule is not None:
            yield "the schedule", f"{type(self._schedule.schedule).__name__} {text_of(self._of_schedule)}"

    def _constants_now(self) -> Any:
        return self.optim.numbers.constants(self.optim._groups, self.optim.defaults, self._variables,
                                            self._schedule is not None)

    def _watch(self) -> None:
        """Remembers objects: as long as all are the same ones, nothing has changed."""
        # To compare objects by identity at each call is cheap; their values are compared only if some object is
        # another one.
        sources = [group.values for group in self.optim._groups] + (self._schedule.watched() if self._schedule else [])
        self._objects = [(source, list(source())) for source in sources]

    def refresh(self) -> str | None:
        """Before a call. Says what is not as it was, for people; numbers that are others now are variables from then on."""
        optim, groups = self.optim, self.optim._groups
        if len(groups) != len(self._params):
            return f"the number of parameter groups: {len(self._params)} were compiled, and there are {len(groups)}"
        for i, (group, params) in enumerate(zip(groups, self._params)):
            if not _identical(params, group["params"]):
                return f"the parameters of group {i}"
        if not _identical(self._state, optim.state.values()) or not all(_identical(t, s.values()) for s, t in self._tensors):
            return "its state: it was cleared or replaced"
        if not all(_identical(values, source()) for source, values in self._objects):
            change = self._constant_change()
            if change is not None:
                return change
            self._watch()
        for place, tensor in self._variables.items():
            if optim.numbers.tensor(groups, *place) is not tensor:
                return f"{place[1]} of parameter group {place[0]}, which is another tensor"
        if self._schedule is not None:
            self._schedule.refresh()
        return None

    def begin_call(self) -> None:
        self.optim._opt_called = True
        if self._schedule is not None:
            self._schedule.begin_call()

    def _constant_change(self) -> str | None:
        changes = [(i, path, was, now.get(path)) for i, (old, now) in enumerate(zip(self._constants, self._constants_now()))
                   for path, was in old.items() if not _same(was, now.get(path))]
        for change in changes:
            # A number that was set by hand once is expected to change again. The next plan has it as a variable, so
            # that it need not be compiled for each value.
            self.optim.numbers.vary(*change, self.optim.defaults, self.optim.structural)
        if changes:
            i, path, was, is_now = changes[0]
            return f"{path} of parameter group {i}: {was!r} was compiled, and it is {is_now!r}"
        if self._schedule is not None and self._of_schedule != self._schedule.constants():
            return f"attributes of its schedule ({type(self._schedule.schedule).__name__})"
        return None


def _identical(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(map(operator.is_, a, b))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a is b
    return a == b


def _contains(items: Any, wanted: Any) -> bool:
    return any(item is wanted for item in items)


def check_can_compile_again(graph: str, functions: Any, what: str) -> None:
    """Raises where compiling again would not be as if nothing had happened."""
    if any(isinstance(function, Generated) for function in functions.values()):
        raise _C.RuntimeError(f"graph '{graph}': its plan has as a constant what has changed since: {what}. To follow, the graph "
                              "would have to be compiled again, and its generator of data would begin anew; make the change "
                              "before the first call")
