"""GradScaler: a loss times a factor, which is taken off the gradients again, and made smaller when these overflow."""

from __future__ import annotations

import math
from typing import Any

import sluice
from sluice import _C
from sluice._C import Tensor


class GradScaler:
    """Eager; torch.amp.GradScaler. In nn.Graph its methods raise NotImplementedError.

    scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(). A step whose gradients have an infinity or a
    NaN is left out, and the scale multiplied by `backoff_factor`; after `growth_interval` steps without one it is multiplied
    by `growth_factor`. `device` is accepted as in torch: gradients may be on any.
    """

    def __init__(self, device: Any = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        if enabled and not growth_factor > 1.0:
            raise AssertionError(f"The growth factor must be > 1.0: got {growth_factor}")
        if enabled and not backoff_factor < 1.0:
            raise AssertionError(f"The backoff factor must be < 1.0: got {backoff_factor}")
        self._enabled, self._scale, self._growth_tracker = enabled, float(init_scale), 0
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
        self._seen: dict[int, bool] = {}  # id(optimizer) -> an overflow was found, since the last update()
        self._stepped: set[int] = set()

    def _here(self, what: str) -> None:
        if _C.is_tracing():
            raise NotImplementedError(f"GradScaler.{what}: in a graph; a plan cannot leave a step out by what gradients are: scale eager "
                                      "losses, or multiply by a constant inside build()")

    def scale(self, outputs: Any) -> Any:
        """`outputs`, a tensor or a nest of lists and tuples of tensors, times the scale."""
        if not self._enabled:
            return outputs
        self._here("scale")
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, (list, tuple)):
            scaled = [self.scale(o) for o in outputs]
            return type(outputs)(*scaled) if hasattr(outputs, "_fields") else type(outputs)(scaled)
        raise ValueError(f"outputs must be a Tensor or an iterable of Tensors: got {type(outputs).__name__}")

    def unscale_(self, optimizer: Any) -> None:
        """Takes the scale off the gradients of `optimizer`, so that they can be clipped before step()."""
        if not self._enabled:
            return
        self._here("unscale_")
        if id(optimizer) in self._stepped:
            raise RuntimeError("unscale_() is being called after step().")
        if id(optimizer) in self._seen:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        self._seen[id(optimizer)] = self._unscale(optimizer)

    def _unscale(self, optimizer: Any) -> bool:
        inverse, overflow, any_gradient = 1.0 / self._scale, False, False
        with sluice.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    if p.grad.dtype is sluice.float16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    any_gradient = True
                    overflow = overflow or not bool(p.grad.isfinite().all())
                    p.grad.mul_(inverse)
        if not any_gradient:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        return overflow

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(*args), unless its gradients overflowed; unscales them first if that has not been done."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        self._here("step")
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        if id(optimizer) in self._stepped:
            raise RuntimeError("step() has already been called since the last update().")
        if id(optimizer) not in self._seen:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        return None if self._seen[id(optimizer)] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Adapts the scale to what step() found, or sets it."""
        if not self._enabled:
            return
        self._here("update")
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._seen:
            raise AssertionError("No inf checks were recorded prior to update.")
        elif any(self._seen.values()):
            self._scale, self._growth_tracker = self._scale * self._backoff_factor, 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                grown = self._scale * self._growth_factor
                self._scale = grown if math.isfinite(grown) and grown <= 3.4028234663852886e38 else self._scale
                self._growth_tracker = 0
        self._seen.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        return self._enabled

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        if not self._enabled:
            return {}
        return {"scale": self._scale, "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._scale, self._growth_tracker = float(state_dict["scale"]), int(state_dict["_growth_tracker"])
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]


class StaticGradScaler(GradScaler):
    """A GradScaler of one scale for good; steps whose gradients overflow are left out. oneflow.amp.StaticGradScaler."""

    def __init__(self, scale_factor: float) -> None:
        if not scale_factor > 0:
            raise ValueError(f"StaticGradScaler: scale_factor is {scale_factor}; must be > 0")
        super().__init__(init_scale=scale_factor)

    def update(self, new_scale: Any = None) -> None:
        scale = self._scale
        super().update(new_scale)
        if new_scale is None:
            self._scale = scale
