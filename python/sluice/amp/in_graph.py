"""The steps of a graph with a GradScaler, and how far build() has said them itself."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import full
from sluice._base.trace import running
from sluice._base.grad_mode import no_grad


class Scaling:
    """The scaling of one run of build(), traced or eager. backward() begins with the scale, unless build() calls scale() itself."""

    def __init__(self, scaler: Any) -> None:
        self.scaler = scaler
        self.updated = False
        self.stepped: list[Any] = []  # by step() of the scaler, which may have left it out
        self._by: str | None = None  # who scales
        self._unscaled: list[Any] = []
        self._overflows: list[Tensor] = []

    def _scales(self, who: str) -> bool:
        """Whether `who` is the one that scales the losses; throws where both did."""
        if who == "scale()" and self._by == "backward()":
            raise RuntimeError("GradScaler.scale: a loss of this build() was scaled by backward() already, as set_grad_scaler() says; call "
                               "scale() for all losses, or for none")
        self._by = self._by or who
        return self._by == who

    def scales_itself(self) -> None:
        """build() calls scale()."""
        self._scales("scale()")

    def begin(self, grads: list[Tensor]) -> list[Tensor]:
        """The gradients with which backward() begins."""
        if not self._scales("backward()"):
            return grads
        return [(g * self.scaler.scale_of_outputs()).to(g.dtype) for g in grads]

    # In a trace

    def unscale(self, optimizer: Any) -> None:
        if any(optimizer is o for o in self._unscaled):
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        self._unscaled.append(optimizer)
        with no_grad():
            inverse = 1.0 / self.scaler.tensors()[0]
            for p in _with_gradients(optimizer):
                if p.grad.dtype is _C.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                p.grad = p.grad * inverse.to(p.grad.dtype)

    def overflow(self, optimizer: Any) -> Tensor:
        """A bool scalar: the step of the optimizer is left out."""
        if self.updated:
            raise RuntimeError("GradScaler: a step after update(); all steps of a build() come before it")
        if not any(optimizer is o for o in self._unscaled):
            self.unscale(optimizer)
        found = [~p.grad.isfinite().all() for p in _with_gradients(optimizer)]
        if not found:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        self._overflows.append(fn.stack(found).any())
        return self._overflows[-1]

    def update(self, new_scale: Any = None) -> None:
        if self.updated:
            raise RuntimeError("GradScaler.update: called twice inside build(); a call of the graph is one step")
        self.updated = True
        if new_scale is None and not self._overflows:
            raise AssertionError("No inf checks were recorded prior to update.")
        scale, tracker = self.scaler.tensors()
        with no_grad(), running.now.batches.once():
            if isinstance(new_scale, Tensor):
                scale._write(new_scale.to(scale.dtype))
            elif new_scale is not None:
                scale._write(full((), float(new_scale), dtype=scale.dtype))
            else:
                now = self.scaler.advanced(fn.stack(self._overflows).any(), scale, tracker)
                for tensor, value in zip((scale, tracker), now):
                    tensor._write(value)

    def finish(self) -> None:
        """Does what build() has not said itself."""
        if not self.updated and self._overflows:
            self.update()


def _with_gradients(optimizer: Any) -> list[Any]:
    return [p for group in optimizer._groups for p in group["params"] if p.grad is not None]


def of(scaler: Any, what: str, scaling: Any) -> Any:
    """The Scaling of the graph being traced; None where none is. Throws where it is not the scaler's."""
    if scaling is not None and scaling.scaler is scaler:
        return scaling
    if _C.is_tracing():
        raise NotImplementedError(f"GradScaler.{what}: in a graph that does not have the scaler; give it to the graph first, with "
                                  "set_grad_scaler()")
    return None
