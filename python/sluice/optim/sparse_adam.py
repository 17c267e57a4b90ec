"""Adam of sparse gradients: torch.optim.SparseAdam."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice.optim.optimizer import Optimizer


class SparseAdam(Optimizer):
    """Adam, of whose averages and parameters a step changes the rows alone that the gradient has: of nn.Embedding(sparse=True)."""

    def __init__(self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, maximize: bool = False) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))

    def _check(self, group: Any) -> None:
        super()._check(group)
        if not group["eps"] > 0:
            raise ValueError(f"Invalid epsilon value: {group['eps']}")

    def _step_in_plan(self) -> None:
        raise NotImplementedError("SparseAdam.step(): inside a graph: how many rows a step has is not known there; use "
                                  "add_optimizer(Adam(...), is_sparse=True), which updates the rows that were looked up")

    def _refuse_sparse(self, group: Any) -> str | None:
        return None

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._zeros(state, p, "exp_avg", "exp_avg_sq")

    def _update_one(self, group: Any, p: Any, grad: Any, state: Any, skip: Any) -> None:
        raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> tuple[Any, dict[str, Any]]:
        step, (beta1, beta2) = state["step"] + 1, map(float, group["betas"])
        grad = -grad if group["maximize"] else grad
        m, v = state["exp_avg"], state["exp_avg_sq"]
        m, v = m + (grad - m) * (1 - beta1), v + (grad * grad - v) * (1 - beta2)
        steps, lr = int(step), group["lr"]
        size = (float(lr) if isinstance(lr, Tensor) else lr) * (1 - beta2**steps) ** 0.5 / (1 - beta1**steps)
        return p - m / (v.sqrt() + float(group["eps"])) * size, {"step": step, "exp_avg": m, "exp_avg_sq": v}
