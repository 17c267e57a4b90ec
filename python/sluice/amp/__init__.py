"""Mixed precision: torch.amp. Regions are entered with `autocast`, and `lists` say what functions do in them; `GradScaler` keeps
gradients of few bits from vanishing."""

from typing import Any

from sluice.amp import lists as lists
from sluice.amp.autocast_mode import (
    autocast as autocast, autocast_decorator as autocast_decorator, is_autocast_available as is_autocast_available)
from sluice.amp.grad_scaler import GradScaler as GradScaler, StaticGradScaler as StaticGradScaler


def __getattr__(name: str) -> Any:
    if name in ("custom_fwd", "custom_bwd"):
        raise AttributeError(f"module 'sluice.amp' has no attribute '{name}': cast in forward() of the autograd.Function by .to(dtype)")
    raise AttributeError(f"module 'sluice.amp' has no attribute '{name}'")
