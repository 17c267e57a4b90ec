"""`import torch` means Sluice: for code of others that was written for torch.

    with sluice.mock_torch():
        from their_package import model      # its `import torch` gets Sluice
    import torch                              # outside: the real one, if it is installed

    python -m sluice.mock_torch script.py     # a whole script

Modules that are imported inside keep Sluice, and are there again when mock_torch is entered again. Modules that had been
imported with the real torch are imported anew inside; the callers of this function are not. With `lazy`, modules that
Sluice lacks can be imported, dtypes that it lacks (`torch.complex32`) can be named, and they complain when they
are used; without, that fails.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from sluice.mock_torch._modules import TORCH_VERSION, DummyModule, DynamicMockModule, ModuleWrapper
from sluice.mock_torch._scope import Scope

__all__ = ["DummyModule", "DynamicMockModule", "ModuleWrapper", "TORCH_VERSION", "disable", "enable", "is_enabled"]


class enable(Scope):
    """From here on, or within a `with` block, `import torch` gives Sluice.

    extra_dict: by name ("torch.fx"), the module, or its name, that stands for a module of torch that Sluice lacks.
    verbose: prints what is imported of torch.
    """

    def __init__(self, lazy: bool = False, verbose: bool = False, *, extra_dict: Any = None) -> None:
        super().__init__(DynamicMockModule(lazy=lazy, verbose=verbose, extra=extra_dict or {}))


class disable(Scope):
    """From here on, or within a `with` block, `import torch` gives torch."""

    def __init__(self) -> None:
        super().__init__(None)


def is_enabled() -> bool:
    """Whether `import torch` gives Sluice now."""
    return Scope.current() is not None


class _Callable(ModuleType):
    def __call__(self, lazy: bool = False, verbose: bool = False, *, extra_dict: Any = None) -> enable:
        return enable(lazy, verbose, extra_dict=extra_dict)


sys.modules[__name__].__class__ = _Callable
