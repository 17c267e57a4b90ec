"""Averages of weights: torch.optim.swa_utils (stochastic weight averaging: Izmailov et al. 2018; exponential moving averages)."""

from __future__ import annotations

import copy
import itertools
import math
from numbers import Integral
from typing import Any, Callable

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import tensor
from sluice._base.grad_mode import no_grad
from sluice.nn.modules.module import Module
from sluice.nn.modules.norm import _BatchNorm
from sluice.optim.lr_scheduler._formula import at_least, at_most, choose, cos, either
from sluice.optim.lr_scheduler.base import LRScheduler, per_group

__all__ = ["AveragedModel", "update_bn", "SWALR", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn", "get_ema_avg_fn",
           "get_swa_avg_fn"]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _of_lists(average: Callable[..., Any]) -> Callable[..., Any]:
    def update(averages: Any, params: Any, num_averaged: Any) -> None:
        with no_grad():
            for a, p in zip(averages, params):
                a.copy_(average(a, p, num_averaged))

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """Writes the exponential moving averages of lists of tensors."""
    return _of_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable[..., Any]:
    """Writes the equal averages of lists of tensors."""
    return _of_lists(get_swa_avg_fn())


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """The exponential moving average of a tensor."""
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return ema_param * decay + current_param * (1 - decay)

    return ema_update


def get_swa_avg_fn() -> Callable[..., Any]:
    """The equal average of a tensor."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a module whose parameters are averages of those that update_parameters() was given.

    avg_fn: (average, parameter, number averaged) -> average; multi_avg_fn: the same of lists, in place; without either, all count
    the same. use_buffers: averages buffers, too; otherwise they are copied.
    """

    n_averaged: Tensor

    def __init__(self, model: Any, device: Any = None, avg_fn: Any = None, multi_avg_fn: Any = None,
                 use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=_C.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Any) -> None:
        """Takes the parameters of `model`, which graphs may have under way, into the averages."""
        if _C.is_tracing():
            raise RuntimeError("AveragedModel.update_parameters: inside build(); call it after the graph, outside")
        tensors = [itertools.chain(m.parameters(), m.buffers() if self.use_buffers else ()) for m in (self.module, model)]
        pairs = [(a.detach(), p.detach().to(a._device)) for a, p in zip(*tensors)]
        with no_grad():
            n = int(self.n_averaged)
            if n == 0:
                for a, p in pairs:
                    a.copy_(p)
            elif self.multi_avg_fn is not None or self.avg_fn is None:
                for kind in dict.fromkeys((a.dtype, a._device) for a, _ in pairs):  # averages of each kind of tensor together
                    averages, params = zip(*((a, p) for a, p in pairs if (a.dtype, a._device) == kind))
                    (self.multi_avg_fn or get_swa_multi_avg_fn())(list(averages), list(params), self.n_averaged)
            else:
                for a, p in pairs:
                    a.copy_(self.avg_fn(a, p, self.n_averaged))
            if not self.use_buffers:
                for a, p in zip(self.module.buffers(), model.buffers()):
                    a.detach().copy_(p.detach().to(a._device))
            self.n_averaged.add_(1)


def update_bn(loader: Any, model: Any, device: Any = None) -> None:
    """The running statistics of the batch normalizations of `model`, anew, as the means over a loader's batches. A batch that is a
    list or tuple has its input first."""
    norms: dict[Any, Any] = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not norms:
        return
    training = model.training
    try:
        model.train()
        for m in norms:
            m.reset_running_stats()
            m.momentum = None
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for m, momentum in norms.items():
            m.momentum = momentum
        model.train(training)


class SWALR(LRScheduler):
    """From the rate there is to swa_lr over anneal_epochs steps, where it stays."""

    def __init__(self, optimizer: Any, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos", last_epoch: int = -1,
                 verbose: bool = False) -> None:
        for lr, group in zip(per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, Integral) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        self._begun = last_epoch + 1
        super().__init__(optimizer, last_epoch, verbose)

    def _share(self, step: Any) -> Any:
        """The share of the swa_lr in the rate after so many steps."""
        done = at_least(at_most(step / max(1, self.anneal_epochs), 1.0), 0.0)
        return done if self._anneal_strategy == "linear" else (1 - cos(done * math.pi)) / 2

    def next_lr(self, lr: Any, step: Any, group: Any) -> Any:
        target, step = self.optimizer.param_groups[group]["swa_lr"], step - self._begun
        if self.anneal_epochs == 0:
            step = at_least(step, 1)
        before, now = self._share(step - 1), self._share(step)
        # The rate before anything was mixed into it.
        first = choose(either(before == 1, False), target, lambda: (lr - before * target) / (1 - before))
        return target * now + first * (1 - now)
