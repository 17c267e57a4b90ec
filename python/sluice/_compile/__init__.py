"""sluice.compile: functions and modules as plans, with their backward passes. docs/compile.md teaches it."""

from __future__ import annotations

import functools
from typing import Any, Callable

from sluice import _C
from sluice.nn.modules.module import Module

from sluice._compile import explaining, report
from sluice._compile.backends import list_backends, register_backend
from sluice._compile.dispatch import Region
from sluice._compile.module import optimized, OptimizedModule
from sluice._compile.regions import all_regions, region_of
from sluice._compile.settings import Settings

def compile(model: Callable[..., Any] | None = None, *, fullgraph: bool = False, dynamic: bool | None = None,  # noqa: A001
            backend: Any = "plan", mode: str | None = None, options: dict[str, Any] | None = None, disable: bool = False) -> Any:
    """A function or module whose calls run as plans, and so do their backward passes; as torch.compile. Also a decorator.

    The first call of a kind traces and compiles. Calls of another kind (dtypes, sizes, requires_grad, modes, arguments that are no
    tensors, globals and attributes that the code has read) are compiled as well. Code that cannot be traced is a *break*:
    it runs eagerly, and the modules that it calls are compiled. `explain()` tells of all that, docs/compile.md teaches it.

    fullgraph: a break is an error that says where and why.
    dynamic: True: one compiled graph for all sizes of axis 0 of the arguments, where each row of the results depends on one row
        of them. None: from the second size on. False: a graph for each size.
    backend: "plan", "eager", "debug", another name of list_backends(), or a callable that gets the graph and example inputs.
    mode: "default", "reduce-overhead", "max-autotune".
    options: see docs/compile.md; of a callable backend, whatever it takes.
    disable: `model` is returned as it is.

    Raises TypeError and ValueError that name what there is, for arguments that are wrong.
    """
    asked = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode, "options": options}
    if model is None:
        Settings(**asked)
        return functools.partial(globals()["compile"], **asked, disable=disable)  # this function, not the builtin
    if isinstance(model, type) or not callable(model):
        what = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise _C.TypeError(f"compile: model: got {what}; must be a function or a module")
    if disable:
        Settings(**asked)
        return model
    if isinstance(model, OptimizedModule):
        model = model._orig_mod
    if isinstance(model, Module):
        return optimized(model, asked)
    function = getattr(model, "_compiled_from", model)
    region = region_of(function, asked)

    @functools.wraps(function, assigned=[a for a in functools.WRAPPER_ASSIGNMENTS if hasattr(function, a)])
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return region(*args, **kwargs)

    compiled._compiled_from, compiled._region = function, region  # type: ignore[attr-defined]
    return compiled


def compile_in_place(module: Module, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "plan", mode: str | None = None,
                     options: dict[str, Any] | None = None, disable: bool = False) -> None:
    """Module.compile."""
    region = region_of(module, {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode, "options": options},
                       "Module.compile", inside=True)
    module._compiled_call_impl = None if disable else region


def reset() -> None:
    """Lets go of everything that was compiled, and sets the counters of stats() to 0: calls compile again."""
    for region in all_regions():
        region.forget()
    report.clear()


def stats(compiled: Any = None) -> dict[str, int]:
    """Counters of everything, or of what compile() returned: `compiles`, of which `recompiles` were not the first; `plans` of forward
    passes, more where one graph has several sizes; `backward_plans`; `breaks`; `calls`, of which `eager_calls` ran eagerly; `limits`,
    calls that would have been compiled but for the limit."""
    if compiled is None:
        return report.totals()
    region = explaining.region_behind(compiled)
    if region is None:
        raise _C.TypeError(f"compile.stats: got {type(compiled).__name__}; must be what compile() returned")
    return dict(region.counter)


def explain(model: Any, *args: Any, **kwargs: Any) -> Any:
    """`explain(f)(x)` or `explain(f, x)`: compiles a call anew, runs it, and tells of its graphs, breaks, guards and ops. It prints as text;
    `graph_count`, `break_count`, `break_reasons`, `ops_per_graph`, `out_guards`, `graphs`, `breaks`."""
    return explaining.explain(model, *args, **kwargs)


for _name, _function in (("stats", stats), ("reset", reset), ("explain", explain), ("list_backends", list_backends),
                         ("register_backend", register_backend)):
    setattr(compile, _name, _function)

__all__ = ["OptimizedModule", "Region", "compile", "explain", "list_backends", "region_of", "register_backend", "reset", "stats"]
