"""GradScaler: a loss times a factor, which is taken off the gradients again, and made smaller when these overflow."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import tensor
from sluice._tensor.dtypes import finfo
from sluice._base.trace import running
from sluice.amp import in_graph
from sluice._base.grad_mode import no_grad


class GradScaler:
    """torch.amp.GradScaler; in nn.Graph with `graph.set_grad_scaler(scaler)`.

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
        self._tensors: Any = None  # the scale and the steps since it has changed, once a graph has them as variables
        self._enabled, self._scale, self._growth_tracker = enabled, float(init_scale), 0
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
        self._seen: dict[int, bool] = {}  # id(optimizer) -> an overflow was found, since the last update()
        self._stepped: set[int] = set()

    # Reading what graphs write waits for their steps.

    @property
    def _scale(self) -> float:
        return self._numbers[0] if self._tensors is None else self._tensors[0].item()

    @_scale.setter
    def _scale(self, scale: float) -> None:
        self._set(0, scale)

    @property
    def _growth_tracker(self) -> int:
        return int(self._numbers[1] if self._tensors is None else self._tensors[1].item())

    @_growth_tracker.setter
    def _growth_tracker(self, steps: int) -> None:
        self._set(1, steps)

    def _set(self, i: int, number: float) -> None:
        self.__dict__.setdefault("_numbers", [0.0, 0])[i] = number
        if self._tensors is not None:
            self._tensors[i].fill_(number)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """The scale and the steps since it has changed, as float64 scalars, which are variables of plans."""
        if self._tensors is None:
            self._tensors = tuple(tensor(float(n), dtype=_C.float64) for n in self._numbers)
        return self._tensors

    def constants(self) -> tuple[Any, ...]:
        """The settings that plans have as they are when they are compiled."""
        return self._enabled, self._growth_factor, self._backoff_factor, self._growth_interval

    def scale_of_outputs(self) -> Tensor:
        """As a float32 scalar, so that a product with a scalar of fewer bits is float32."""
        return tensor(self._scale, dtype=_C.float32) if self._tensors is None else self._tensors[0].to(_C.float32)

    def _graph(self, what: str) -> Any:
        scaling = in_graph.of(self, what, running.now.scaling)
        return scaling if _C.is_tracing() else None

    def scale(self, outputs: Any) -> Any:
        """`outputs`, a tensor or a nest of lists and tuples of tensors, times the scale."""
        if not self._enabled:
            return outputs
        if (scaling := in_graph.of(self, "scale", running.now.scaling)) is not None:
            scaling.scales_itself()
        return self._scaled(outputs, self.scale_of_outputs())

    def _scaled(self, outputs: Any, scale: Tensor) -> Any:
        if isinstance(outputs, Tensor):
            return outputs * scale
        if isinstance(outputs, (list, tuple)):
            scaled = [self._scaled(o, scale) for o in outputs]
            return type(outputs)(*scaled) if hasattr(outputs, "_fields") else type(outputs)(scaled)
        raise ValueError(f"outputs must be a Tensor or an iterable of Tensors: got {type(outputs).__name__}")

    def unscale_(self, optimizer: Any) -> None:
        """Takes the scale off the gradients of `optimizer`, so that they can be clipped before step()."""
        if not self._enabled:
            return
        if (scaling := self._graph("unscale_")) is not None:
            return scaling.unscale(optimizer)
        if id(optimizer) in self._stepped:
            raise RuntimeError("unscale_() is being called after step().")
        if id(optimizer) in self._seen:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        self._seen[id(optimizer)] = self._unscale(optimizer)

    def _unscale(self, optimizer: Any) -> bool:
        inverse, overflow, any_gradient = 1.0 / self._scale, False, False
        with no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    if p.grad.dtype is _C.float16:
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
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        if self._graph("step") is not None:
            return optimizer.step(*args, **kwargs)  # which the plan leaves out where gradients overflow
        if id(optimizer) in self._stepped:
            raise RuntimeError("step() has already been called since the last update().")
        if id(optimizer) not in self._seen:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        if running.now.scaling is not None:
            running.now.scaling.stepped.append(optimizer)
        return None if self._seen[id(optimizer)] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Adapts the scale to what step() found, or sets it."""
        if not self._enabled:
            return
        scaling = in_graph.of(self, "update", running.now.scaling)
        if scaling is not None and _C.is_tracing():
            return scaling.update(new_scale)
        if scaling is not None:
            scaling.updated = True
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._seen:
            raise AssertionError("No inf checks were recorded prior to update.")
        else:
            now = [tensor(float(n), dtype=_C.float64) for n in (self._scale, self._growth_tracker)]
            scale, tracker = self.advanced(tensor(any(self._seen.values())), *now)
            self._scale, self._growth_tracker = scale.item(), int(tracker.item())
        self._seen.clear()
        self._stepped.clear()

    def advanced(self, overflow: Tensor, scale: Tensor, tracker: Tensor) -> tuple[Tensor, Tensor]:
        """The scale, and the steps since it has changed, after one more step."""
        grown, due = scale * self._growth_factor, tracker + 1 == self._growth_interval
        larger = fn.where(due & (grown <= finfo(_C.float32).max), grown, scale)
        return fn.where(overflow, scale * self._backoff_factor, larger), fn.where(overflow | due, tracker * 0, tracker + 1)

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

    def advanced(self, overflow: Tensor, scale: Tensor, tracker: Tensor) -> tuple[Tensor, Tensor]:
        return scale + 0, tracker + 0
