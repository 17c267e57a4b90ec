"""The wishes that a module has for an nn.Graph it is part of."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sluice import sbp
from sluice._C import Tensor


class ModuleConfig:
    """`module.config`, to be set before the graph's first call."""

    def __init__(self) -> None:
        self._stage_id: int | None = None
        self._placement: Any = None
        self._checkpoint = False
        self.zero: Any = None  # of a graph that has the module, where its own config says nothing: sluice.parallel.parallelize
        self.modes: set[bool] = set()  # `training` of graphs that were traced with it

    @property
    def stage_id(self) -> int | None:
        """Which stage of a pipeline the module is; modules inside of it too, unless they say otherwise.

        Stage i of s begins up to s - i micro-batches (set_gradient_accumulation_steps) before it has finished the first, so
        that the stages work at the same time; what it keeps of a micro-batch, it has memory for so many times.
        """
        return self._stage_id

    @stage_id.setter
    def stage_id(self, stage: int | None) -> None:
        if stage is not None and (not isinstance(stage, Integral) or isinstance(stage, bool) or not 0 <= stage < 4096):
            raise ValueError(f"stage_id: got {stage!r}; must be an int in 0 to 4095, or None")
        self._stage_id = stage

    @property
    def activation_checkpointing(self) -> bool:
        """Only the results of the module's forward are kept for the backward pass; the rest is computed again from its
        inputs, bit by bit the same. It costs the time of one more forward pass of the module, and saves the memory of its
        activations. The innermost of modules within each other that says so counts. See sluice.utils.checkpoint."""
        return self._checkpoint

    @activation_checkpointing.setter
    def activation_checkpointing(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise ValueError(f"activation_checkpointing: got {mode!r}; must be True or False")
        self._checkpoint = mode

    def set_stage(self, stage_id: int | None = None, placement: Any = None) -> None:
        """The stage, and where its inputs are brought when the module is called: to `placement`, whole or as they lie."""
        self.stage_id = stage_id
        self._placement = placement

    def get(self, name: str, default: Any = None) -> Any:
        """What is set under a name, as a mapping has it: packages ask a model's config so, whatever kind it is of."""
        return getattr(self, name, default)

    @staticmethod
    def of(module: Any) -> ModuleConfig:
        known = module.__dict__.get("_graph_config")
        if known is None:
            known = module.__dict__["_graph_config"] = ModuleConfig()
        return known

    def bring(self, nest: Any) -> Any:
        """The arguments of a call that is being traced."""
        if self._placement is None:
            return nest
        if isinstance(nest, Tensor):
            if not nest._traced:
                return nest  # a constant is where it is read
            laid = getattr(nest, "_laid", None)
            return nest.to_global(self._placement, laid[1] if laid else sbp.broadcast)
        if isinstance(nest, dict):
            return {k: self.bring(v) for k, v in nest.items()}
        if isinstance(nest, (list, tuple)):
            items = [self.bring(v) for v in nest]
            return type(nest)(*items) if hasattr(nest, "_fields") else type(nest)(items)
        return nest

    class of_module:
        """Reads as the module's ModuleConfig; only reading, so that a module may have a `config` of its own."""

        def __get__(self, module: Any, owner: Any) -> Any:
            return self if module is None else ModuleConfig.of(module)
