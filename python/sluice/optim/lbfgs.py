"""torch.optim.LBFGS (Liu and Nocedal 1989)."""

from __future__ import annotations

from typing import Any

from sluice._C import fn, Tensor
from sluice._tensor.creation import zeros_like
from sluice._base.grad_mode import enable_grad, no_grad
from sluice.optim._line_search import Point, strong_wolfe
from sluice.optim.optimizer import Optimizer, parts_of


class LBFGS(Optimizer):
    """Quasi-Newton steps, by the last `history_size` changes of the gradient. Eager: how often a step evaluates its closure is
    known only while it runs.

    line_search_fn: None, a step of length lr; or "strong_wolfe".
    """

    def __init__(self, params: Any, lr: Any = 1, max_iter: int = 20, max_eval: Any = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: Any = None) -> None:
        super().__init__(params, dict(lr=lr, max_iter=max_iter, max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
                                      tolerance_grad=tolerance_grad, tolerance_change=tolerance_change,
                                      history_size=history_size, line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def _check(self, group: Any) -> None:
        super()._check(group)
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")

    def step(self, closure: Any) -> Any:
        """closure: clears the gradients, computes the loss and its gradients, and returns it. Returns the loss at the start."""
        group = self.param_groups[0]
        params, lr = group["params"], float(group["lr"])
        state = self.state[params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluate() -> tuple[Any, Tensor]:
            with enable_grad():
                loss = closure()
            state["func_evals"] += 1
            return loss, fn.cat([parts_of(zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in params])

        def move(t: float, start: Any) -> None:
            offset = 0
            for p, origin in zip((parts_of(p) for p in params), start):
                p.copy_(origin + state["d"][offset:offset + p.numel()].reshape(p.shape) * t)
                offset += p.numel()

        with no_grad():
            first, grad = evaluate()
            if _largest(grad) <= group["tolerance_grad"]:
                return first
            loss, evaluations = float(first), 1
            for iteration in range(1, group["max_iter"] + 1):
                state["n_iter"] += 1
                direction = self._direction(group, state, grad)
                state["d"], state["prev_flat_grad"], state["prev_loss"] = direction, grad.clone(), loss
                t = min(1.0, 1.0 / float(grad.abs().sum())) * lr if state["n_iter"] == 1 else lr
                state["t"] = t
                slope = float(grad.dot(direction))
                if slope > -group["tolerance_change"]:
                    break
                start = [parts_of(p.detach()).clone() for p in params]
                if group["line_search_fn"] is not None:

                    def at(t: float) -> Point:
                        move(t, start)
                        value, there = evaluate()
                        return Point(t, float(value), there, float(there.dot(direction)))

                    found, looks = strong_wolfe(at, Point(0.0, loss, grad, slope), t, _largest(direction),
                                                group["tolerance_change"], group["max_eval"] - evaluations)
                    state["t"], loss, grad = found.t, found.value, found.grad
                    move(found.t, start)
                else:
                    looks = 0
                    move(t, start)
                    if iteration != group["max_iter"]:
                        value, grad = evaluate()
                        loss, looks = float(value), 1
                evaluations += looks
                if evaluations >= group["max_eval"] or _largest(grad) <= group["tolerance_grad"]:
                    break
                if _largest(direction) * abs(state["t"]) <= group["tolerance_change"]:
                    break
                if abs(loss - state["prev_loss"]) < group["tolerance_change"]:
                    break
        return first

    @staticmethod
    def _direction(group: Any, state: Any, grad: Tensor) -> Tensor:
        """Minus the approximate inverse Hessian times the gradient; what it is approximated by is in the state."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return -grad
        change, stride = grad - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = float(change.dot(stride))
        history = state["old_dirs"], state["old_stps"], state["ro"]
        if curvature > 1e-10:
            if len(state["old_dirs"]) == group["history_size"]:
                for kept in history:
                    kept.pop(0)
            for kept, value in zip(history, (change, stride, 1.0 / curvature)):
                kept.append(value)
            state["H_diag"] = curvature / float(change.dot(change))
        past = list(zip(*history))
        q, shares = -grad, []
        for y, s, rho in reversed(past):
            shares.append(float(s.dot(q)) * rho)
            q = q - y * shares[-1]
        r = q * state["H_diag"]
        for (y, s, rho), share in zip(past, reversed(shares)):
            r = r + s * (share - float(y.dot(r)) * rho)
        return r


def _largest(x: Tensor) -> float:
    return float(x.abs().max())
