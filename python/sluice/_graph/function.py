"""Graphs of functions: what sluice.lower traces, and Graph.trace calls."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

from sluice._C import Tensor
from sluice.amp.grad_scaler import GradScaler
from sluice._graph.graph import Graph
from sluice.nn.modules.module import Module
from sluice.optim.lr_scheduler.base import LRScheduler
from sluice.optim.optimizer import Optimizer


class FunctionGraph(Graph):
    """A graph that calls one function or module, with its arguments.

    state: what the function uses besides them, in a list or by name: modules, whose parameters are shared with the plan,
    optimizers, schedules, a gradient scaler, and tensors, which are saved with the state of the graph.
    """

    def __init__(self, function: Callable[..., Any], state: Any = (), name: str | None = None, dynamic: bool = False) -> None:
        if not callable(function) or inspect.isclass(function):
            what = f"the class {function.__name__}" if inspect.isclass(function) else type(function).__name__
            raise TypeError(f"Graph.trace: got {what}; expected a function or a module")
        super().__init__(name=name or getattr(function, "__name__", type(function).__name__))
        if dynamic:
            self.__dict__["_several_shapes"] = 10, True
        if not isinstance(function, Module):
            functools.update_wrapper(self, function, updated=())
        self.function = function
        self.__dict__["_signature"] = inspect.signature(function.forward if isinstance(function, Module) else function)
        self._take(state if isinstance(state, dict) else {f"state{i}": thing for i, thing in enumerate(_as_list(state))})

    def _take(self, state: dict[str, Any]) -> None:
        kept = [thing for thing in state.values() if isinstance(thing, LRScheduler)]
        for name, thing in state.items():
            if isinstance(thing, (Module, Tensor)):
                if not isinstance(name, str) or not name.isidentifier() or hasattr(self, name):
                    raise ValueError(f"Graph.trace: state is named {name!r}; must be an identifier that no attribute of graphs has")
                setattr(self, name, thing)
            elif isinstance(thing, Optimizer):
                mine = [schedule for schedule in kept if schedule.optimizer is thing]
                if len(mine) > 1:
                    raise ValueError(f"Graph.trace: {type(thing).__name__} has {len(mine)} schedules; join them in a ChainedScheduler")
                self.add_optimizer(thing, lr_sch=mine[0] if mine else None)
            elif isinstance(thing, GradScaler):
                self.set_grad_scaler(thing)
            elif thing not in kept:
                raise TypeError(f"Graph.trace: state '{name}' is {type(thing).__name__}; expected modules, optimizers, "
                                "schedules, a GradScaler and tensors")
        for schedule in kept:
            if not any(schedule.optimizer is optim for optim, _ in self._optimizers):
                raise ValueError(f"Graph.trace: state has a {type(schedule).__name__}, and not its optimizer")

    def build(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> FunctionGraph:
        if instance is not None:
            raise TypeError(f"Graph.trace: '{self.name}' is a method of {type(instance).__name__}; trace the module, "
                            "Graph.trace(module), or a function that calls it")
        return self


def _as_list(state: Any) -> list[Any]:
    return [state] if isinstance(state, Tensor) or not hasattr(state, "__iter__") or isinstance(state, Module) else list(state)
