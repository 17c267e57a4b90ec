"""Options of graphs that train with rounded layers."""

from __future__ import annotations

import dataclasses
from typing import Any

from sluice.nn.modules.module import Module
from sluice.nn.modules.quantization import observed, QatConfig


class QuantizationOptions:
    """A part of GraphConfig."""

    _options: dict[str, Any]

    def _set(self, name: Any, value: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}: no _set(); a class with options of rounding must define it")

    def enable_quantization_aware_training(self, mode: bool = True) -> None:
        """Convolutions and linear layers of the graph's modules compute with inputs and weights rounded to 8-bit integers, and gradients
        pass as if nothing had been rounded, so that the weights become ones that bear it. Afterwards `sluice.quantization.convert` makes
        the graph of integers. See qat_config() for how they are rounded.

        The layers get observers, which are submodules with buffers, when the graph is first called, and keep them: they round in other
        graphs and in eager calls, too. A layer that has seen no input in training rounds none.
        """
        self._set("quantization_aware_training", self._qat() if mode else None)

    def qat_config(self, **options: Any) -> None:
        """How enable_quantization_aware_training() rounds: see sluice.quantization.QatConfig for the options; OneFlow's names."""
        known = [field.name for field in dataclasses.fields(QatConfig)]
        wrong = [name for name in options if name not in known]
        if wrong:
            raise TypeError(f"qat_config: got {wrong[0]!r}; must be some of {', '.join(known)}")
        self.__dict__["_qat_config"] = dataclasses.replace(self._qat(), **options)
        if self._options.get("quantization_aware_training") is not None:
            self._set("quantization_aware_training", self._qat())

    def _qat(self) -> QatConfig:
        return self.__dict__.get("_qat_config") or QatConfig()

    def observe_ranges(self, modules: Any) -> None:
        """The layers of a graph's modules become such that round, where that is asked for."""
        config = self._options.get("quantization_aware_training")
        for module in modules if config is not None else ():
            if isinstance(module, Module):
                observed(module, config)
