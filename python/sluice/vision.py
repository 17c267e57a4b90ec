"""torchvision and timm on Sluice: `from sluice import vision`, then `vision.models.resnet18()` or `vision.create_model("vit_tiny_patch16_224")`.

The packages are those that are installed; here they are imported with Sluice in the place of torch (sluice.mock_torch), when a name is
first used. What they make are Sluice's modules and tensors: train them, trace them with `nn.Graph`, save and serve them.

    names of torchvision    datasets io models ops transforms utils tv_tensors
    names of timm           create_model list_models is_model model_entrypoint timm
    weights                 load_state_dict_from_url
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable

from sluice import mock_torch
from sluice.hub import load_state_dict_from_url as load_state_dict_from_url

_TORCHVISION = ("datasets", "io", "models", "ops", "transforms", "tv_tensors", "utils")
_TIMM = ("create_model", "is_model", "list_models", "model_entrypoint")
__all__ = sorted(["load_state_dict_from_url", "timm", *_TORCHVISION, *_TIMM])


def _imported(name: str, wanted: str) -> Any:
    """A module of a package, within which torch is Sluice."""
    package = name.partition(".")[0]
    with mock_torch.enable(lazy=True):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            raise ModuleNotFoundError(f"sluice.vision.{wanted}: {package} is not installed; `pip install --no-deps {package}`, without "
                                      "torch, which it does not need here", name=package) from None


def _within(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for which torch is Sluice when it is called, too: it imports modules then."""
    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with mock_torch.enable(lazy=True):
            return function(*args, **kwargs)

    return inside


def __getattr__(name: str) -> Any:
    if name in _TORCHVISION:
        found = _imported(f"torchvision.{name}", name)
    elif name in _TIMM:
        found = _within(getattr(_imported("timm", name), name))
    elif name == "timm":
        found = _imported("timm", name)
    else:
        raise AttributeError(f"module 'sluice.vision' has no attribute '{name}'; it has {', '.join(__all__)}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
