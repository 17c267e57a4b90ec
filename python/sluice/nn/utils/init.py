"""Modules without first values."""

from __future__ import annotations

import inspect
from typing import Any

from sluice.nn import init


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """module_cls(*args, **kwargs) whose parameters have undefined contents; nothing is drawn."""
    from sluice.nn.modules.module import Module

    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    with init.skipped():
        return module_cls(*args, **kwargs)
