"""ZeRO (Rajbhandari et al. 2020): of what every replica of a data parallel training would keep, each keeps a part."""

from __future__ import annotations

import contextlib
import math
from numbers import Integral
from dataclasses import dataclass
from typing import Any, Iterable, Iterator

from sluice._C import Tensor
from sluice._tensor.global_tensors import place, placement
from sluice.sbp import broadcast, split

MODES = ("distributed_split", "non_distributed")


@dataclass(frozen=True)
class Zero:
    """Says what lies in parts, as GraphConfig.enable_zero says. The rest follows: the compiler sees that a gradient is
    wanted in parts by the state it meets, and that a parameter is wanted whole."""

    stage: int = 1
    mode: str = "distributed_split"
    min_size: int = 1024
    restore_level: int = 1
    axis: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"zero: mode is {self.mode!r}; must be {' or '.join(map(repr, MODES))}")
        if self.stage not in (1, 2, 3):
            raise ValueError(f"zero: stage is {self.stage!r}; must be 1, 2 or 3")
        if self.stage == 3 and self.mode == "non_distributed":
            raise ValueError("zero: stage is 3, mode is 'non_distributed'; only 'distributed_split' has parameters in parts")
        if not isinstance(self.min_size, Integral) or self.min_size < 1:
            raise ValueError(f"zero: the minimum size after split is {self.min_size!r}; must be an int of at least 1")
        if self.restore_level not in (0, 1, 2):
            raise ValueError(f"zero: shard_restore_level is {self.restore_level!r}; must be 0, 1 or 2")

    def lay(self, optim: Any) -> None:
        """Lays the optimizer's state, and in stage 3 its parameters, before they are traced."""
        params = [p for group in optim.param_groups for p in group["params"] if p.requires_grad]
        if not any(p.is_global for p in params):
            raise ValueError("enable_zero: no parameter of the optimizer is global; call module.to_global(placement, "
                             "sbp.broadcast) first")
        loads: dict[Any, dict[int, int]] = {}
        for p in params:
            axis = self._axis_of_copies(p) if p.is_global else None
            rests = getattr(p, "rests_split", None) is not None  # since an earlier call, or in another graph
            if axis is None and not rests:
                continue
            home, sbp = p.placement, p.sbp
            if self.mode == "non_distributed":
                if len(home.shape) > 1:
                    raise ValueError(f"enable_zero: mode is 'non_distributed', and a parameter lies on {home}; must be a row of devices, "
                                     "or 'distributed_split'")
                load = loads.setdefault(p.placement, dict.fromkeys(p.placement.ranks, 0))
                rank = min(load, key=load.get)
                load[rank] += p.numel() * p.element_size()
                home, sbp = placement(home.type, [rank]), broadcast
                optim.homes[p] = home
            elif not rests:
                sbp = self._parts(p, axis)
                if sbp is None:
                    continue
            if self.stage == 3 and not rests:
                p.rests_split = p.sbp  # how modules find it in their forward passes
                p.data = p.data.to_global(sbp=sbp)
            state = optim.state[p]
            for name, t in state.items():
                if isinstance(t, Tensor) and t._shape == p._shape:
                    state[name] = place(t, home, sbp)

    def _axis_of_copies(self, p: Tensor) -> int | None:
        """The axis that is asked for, or the first one, along which all devices have the same of the parameter."""
        axes = range(len(p.placement.shape)) if self.axis is None else [p.placement.axis(self.axis)]
        return next((k for k in axes if p.placement.shape[k] > 1 and p.sbp[k] == broadcast), None)

    def _parts(self, p: Tensor, axis: int) -> Any:
        """How it lies in parts along `axis`: by the first dim, or the next that no other axis splits; None if not worth it."""
        n, taken = p.placement.shape[axis], {one.dim for one in p.sbp}
        dim = next((d for d in range(p.ndim) if d not in taken), None)
        if dim is None or p._shape[dim] < n or math.prod(p._shape) // p.placement.size() < self.min_size:
            return None
        return (*p.sbp[:axis], split(dim), *p.sbp[axis + 1:])

    @contextlib.contextmanager
    def restored(self, blocks: Iterable[Any]) -> Iterator[None]:
        """While a graph is traced: in their forward passes, modules find their parameters whole that rest split."""
        whole: dict[int, Tensor] = {}
        tables, handles = [], []
        for module in dict.fromkeys(m for block in blocks for m in block.modules()):
            split_ones = {name: p for name, p in module._parameters.items() if getattr(p, "rests_split", None) is not None}
            if not split_ones or self.restore_level == 0:
                continue

            def gather(module: Any, _: Any, split_ones: Any = split_ones) -> None:
                for name, p in split_ones.items():
                    if id(p) not in whole:
                        whole[id(p)] = p.to_global(sbp=p.rests_split)
                    module._parameters[name] = whole[id(p)]

            def scatter(module: Any, *_: Any, split_ones: Any = split_ones) -> None:
                module._parameters.update(split_ones)

            tables.append((module, scatter))
            handles += [module.register_forward_pre_hook(gather), module.register_forward_hook(scatter)]
        try:
            yield
        finally:
            for module, scatter in tables:
                scatter(module)
            for handle in handles:
                handle.remove()
