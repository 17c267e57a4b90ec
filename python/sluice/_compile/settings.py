"""Settings of compile(): mode, options, backend."""

from __future__ import annotations

import difflib
from numbers import Integral
from typing import Any

from sluice import _C

from sluice._compile import backends

MODES = {"default": "plans as nn.Graph makes them",
         "reduce-overhead": "short steps run in the calling thread; results are exchanged and not copied: the plan keeps memory for those in flight",
         "max-autotune": "several plans of each graph are timed, and the fastest is kept; explain() lists them"}
_SHORT = 1e-4  # seconds of a step that runs in the calling thread: to wake another costs a part of it
OPTIONS = {"recompile_limit": 8, "max_size": 65536, "fallback_random": False, "outputs_buffer_size": None, "cores": None}


class Settings:
    """Checked; equal ones compile alike."""

    def __init__(self, fullgraph: Any = False, dynamic: Any = None, backend: Any = "plan", mode: Any = None, options: Any = None,
                 where: str = "compile") -> None:
        if not isinstance(fullgraph, bool):
            raise _C.TypeError(f"{where}: fullgraph: got {fullgraph!r}; must be a bool")
        if dynamic is not None and not isinstance(dynamic, bool):
            raise _C.TypeError(f"{where}: dynamic: got {dynamic!r}; must be True, False or None")
        if mode is not None and mode not in MODES:
            raise _C.ValueError(f"{where}: mode: got {mode!r}; must be one of {', '.join(map(repr, MODES))}")
        if options is not None and not isinstance(options, dict):
            raise _C.TypeError(f"{where}: options: got {type(options).__name__}; must be a dict")
        self.fullgraph, self.dynamic, self.mode = fullgraph, dynamic, mode or "default"
        self.backend = backends.find(backend, where)
        given = dict(options or {})
        self.options = {**OPTIONS, **{k: v for k, v in given.items() if k in OPTIONS}}
        self.asked_of_backend = {**({"mode": mode} if mode is not None else {}), **({"options": given} if options is not None else {})}
        if isinstance(backend, str):
            unknown = [k for k in given if k not in OPTIONS]
            if unknown:
                near = difflib.get_close_matches(str(unknown[0]), OPTIONS, 1)
                raise _C.ValueError(f"{where}: options: got {unknown[0]!r}; keys are {', '.join(map(repr, OPTIONS))}"
                                    + (f" (did you mean {near[0]!r}?)" if near else ""))
        for key in ("recompile_limit", "max_size"):
            limit = self.options[key]
            if not isinstance(limit, Integral) or isinstance(limit, bool) or limit < 1:
                raise _C.ValueError(f"{where}: options: {key} is {limit!r}; must be an int of at least 1")

    def configure(self, graph: Any, device: Any, exchange: bool = False, trains: bool = False) -> None:
        """Sets the options of a graph that is to be compiled. exchange: its results are not copied, in any mode. trains: it computes
        gradients, or what they are computed from, so that weights change between its calls."""
        if device is not None:
            graph.config.set_device(device)
        if self.options["outputs_buffer_size"] is not None:
            graph.config.set_outputs_buffer_size(self.options["outputs_buffer_size"])
        if self.options["cores"] is not None:
            graph.config.set_cores(self.options["cores"])
        graph.config._options["weights_change"] = trains
        graph.config._options["zero_copy"] = exchange or self.mode == "reduce-overhead"
        if self.mode == "reduce-overhead":
            graph.config.set_inline_up_to(_SHORT)
        if self.mode == "max-autotune":
            graph.config.enable_choose_best_memory_allocation()
