"""Adam and AdamW: torch.optim.Adam (Kingma and Ba 2015; AMSGrad: Reddi et al. 2018), AdamW (Loshchilov and Hutter 2019)."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice.optim._math import decoupled, mean, mean_square, precise
from sluice.optim._numbers import like
from sluice.optim.optimizer import Optimizer


class Adam(Optimizer):
    """Weight decay is added to the gradient, or shrinks the parameter directly where it is decoupled.

    do_bias_correction: False leaves the averages as they are, which begin with zeros.
    """

    rowwise = True

    _widen = False

    def __init__(self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, weight_decay: Any = 0,
                 amsgrad: bool = False, *, foreach: Any = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False, fused: Any = None, decoupled_weight_decay: bool = False,
                 do_bias_correction: bool = True) -> None:
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize,
                        foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused,
                        decoupled_weight_decay=decoupled_weight_decay)
        super().__init__(params, defaults if do_bias_correction else {**defaults, "do_bias_correction": False})

    def _init_state(self, group: Any, p: Any, state: Any) -> None:
        self._scalar(state)
        self._zeros(state, p, "exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        step, betas = state["step"] + 1, group["betas"]
        names = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if group["amsgrad"] else [])
        varying = any(isinstance(x, Tensor) for x in (*betas, group["eps"], group["weight_decay"]))
        if varying or not group.get("do_bias_correction", True):
            new = self._varying(group, p, grad, state, step)
        else:
            new = fn.adam_update(p, grad, state["exp_avg"], state["exp_avg_sq"], step, group["lr"],
                                 state["max_exp_avg_sq"] if group["amsgrad"] else None, tuple(map(float, betas)),
                                 float(group["eps"]), float(group["weight_decay"]), group["decoupled_weight_decay"],
                                 group["maximize"])
        return new[0], {"step": step, **dict(zip(names, new[1:]))}

    def _varying(self, group: Any, p: Any, grad: Any, state: Any, step: Any) -> Any:
        """The same, of hyperparameters that are tensors."""
        narrow, lr, (beta1, beta2) = p.dtype, group["lr"], group["betas"]
        if narrow in (_C.float16, _C.bfloat16):
            p, grad = p.float(), grad.float()
        m, v = (state[name].to(p.dtype) for name in ("exp_avg", "exp_avg_sq"))
        p, grad = decoupled(group, p, grad)
        m, v = mean(m, grad, beta1), mean_square(v, grad, beta2)
        new = [m, v]
        if group["amsgrad"]:
            new.append(fn.maximum(state["max_exp_avg_sq"].to(p.dtype), v))
        corrections = (1.0, 1.0)
        if group.get("do_bias_correction", True):
            corrections = tuple(1 - beta ** precise(step) for beta in (beta1, beta2))
        denominator = new[-1].sqrt() / like(corrections[1] ** 0.5, p) + like(group["eps"], p)
        p = p - m / denominator * like(lr / corrections[0], p)
        return [t.to(narrow) for t in (p, *new)]


class AdamW(Adam):
    """Weight decay shrinks the parameter directly."""

    def __init__(self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, weight_decay: Any = 1e-2,
                 amsgrad: bool = False, *, maximize: bool = False, foreach: Any = None, capturable: bool = False,
                 differentiable: bool = False, fused: Any = None, do_bias_correction: bool = True) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
                         capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
                         do_bias_correction=do_bias_correction)


class LazyAdam(Adam):
    """Adam that leaves rows alone, and what it remembers of them, which have no gradient in a step: for embeddings, of which a
    batch reads a few rows. A row is what has one index of the first axis. OneFlow's lazy_adam."""

    def _update(self, group: Any, p: Any, grad: Any, state: Any) -> Any:
        new, changed = super()._update(group, p, grad, state)
        if p.ndim == 0:
            return new, changed
        axes = list(range(1, p.ndim))
        read = (grad != 0).any(dim=axes, keepdim=True) if axes else grad != 0
        kept = {name: value if name == "step" else fn.where(read, value, state[name]) for name, value in changed.items()}
        return fn.where(read, new, p), kept
