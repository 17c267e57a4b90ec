"""The parts of build() that are computed once per micro-batch, and those of the graph once per step."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import _C
from sluice._C import fn


class MicroBatches:
    """A step is `n` micro-batches."""

    def __init__(self, n: int) -> None:
        if not isinstance(n, Integral) or isinstance(n, bool) or not 1 <= n <= 4096:
            raise ValueError(f"set_gradient_accumulation_steps: got {n!r}; must be an int in 1 to 4096")
        self.n = int(n)

    def part(self, graph: str, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a micro-batch of an input."""
        if self.n == 1 or not shape:
            return shape
        if shape[0] % self.n:
            raise _C.ValueError(f"graph '{graph}': argument '{name}' has {shape[0]} rows; must be a multiple of {self.n}, the "
                                "micro-batches of a step (set_gradient_accumulation_steps)")
        return shape[0] // self.n, *shape[1:]

    def pack(self, output: Any) -> Any:
        """Those of all micro-batches; n times what is there once a step, as constants and what an optimizer has updated."""
        if self.n == 1:
            return output
        with once_per(self.n):
            if not _C.touches_graph(output) or _C.micro_batches_of(output) == self.n:
                return fn.cat([output if output.ndim else output.reshape(1)] * self.n)
            return _C.ops.pack(output, n=self.n)

    def once(self) -> once_per:
        """The scope of what else is there once a step for updates."""
        return once_per(self.n, "update")

    def update(self, optim: Any) -> once_per:
        """The scope of an update: the gradients that `optim` finds are the means of the micro-batches'."""
        if self.n > 1:
            for p in (p for group in optim.param_groups for p in group["params"]):
                if _C.micro_batches_of(p) == 1:
                    raise _C.NotImplementedError(
                        f"optimizer: build() writes to a parameter that the optimizer updates, too: "
                        f"{p.dtype.name}{tuple(p.shape)}. With micro-batches build() would write to it {self.n} times a "
                        "step; write to it outside of the graph")
            with once_per(1, "update"):  # what is there once, as a constant is, is its own mean
                sums = [(p, _C.ops.accumulate(p.grad, n=self.n)) for group in optim.param_groups for p in group["params"]
                        if p.grad is not None and _C.micro_batches_of(p.grad) == 1]
            with once_per(self.n, "update"):
                for p, grad in sums:
                    p.grad = grad * (1 / self.n)
        return self.once()


class once_per:
    """Ops that are traced inside run once per `n` micro-batches, in a role ("update") where one is given."""

    def __init__(self, n: int, role: str | None = None) -> None:
        self._n, self._role = n, role

    def __enter__(self) -> None:
        self._scopes = [_C.RateScope(self._n)] + ([_C.RoleScope(self._role)] if self._role else [])

    def __exit__(self, *exc: Any) -> None:
        for scope in reversed(self._scopes):
            scope.close()
