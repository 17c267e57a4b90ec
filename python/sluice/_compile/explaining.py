"""explain(): what compiling a call comes to."""

from __future__ import annotations

import types
from typing import Any

from sluice import _C
from sluice._base.trace import within
from sluice.nn.modules.module import Module

from sluice._compile import guards
from sluice._compile.breaks import explaining
from sluice._compile.module import OptimizedModule
from sluice._compile.regions import region_of
from sluice._compile.report import Explanation


def region_behind(compiled: Any) -> Any:
    """The region of what compile() returned; None: it did not return this."""
    if isinstance(compiled, OptimizedModule):
        return compiled._region
    if isinstance(compiled, Module):
        return compiled._compiled_call_impl
    if isinstance(compiled, types.MethodType):
        return region_behind(compiled.__func__)
    return getattr(compiled, "_region", None)


def explain(model: Any, *args: Any, **kwargs: Any) -> Any:
    if not args and not kwargs:
        return lambda *args, **kwargs: _explained(model, args, kwargs)
    return _explained(model, args, kwargs)


def _explained(model: Any, args: Any, kwargs: Any) -> Explanation:
    if not callable(model):
        raise _C.TypeError(f"explain: model: got {type(model).__name__}; must be a function or a module")
    behind = region_behind(model)
    asked = {"fullgraph": False, "dynamic": None, "backend": "plan", "mode": None, "options": None} if behind is None else behind.asked
    region = region_of(behind.function if behind is not None else model, {**asked, "fullgraph": False})
    with within(regions=None), explaining():
        region(*args, **kwargs)
    graphs = [{"name": p.name, "ops": p.ops(), "backward_ops": p.backward_ops, "text": p.text(), "guards": guards.described(p), "notes": p.notes(),
               "saved_bytes": p.saved_bytes()}
              for p in region.all_programs()]
    return Explanation(region.name, graphs, region.all_breaks())
