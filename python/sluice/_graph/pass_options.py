"""Options that say what the compiler's passes do, and the report of what they have done."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from numbers import Integral
from typing import Any, Callable

from sluice import _C

# Passes without which some graphs have no plan, or that do what the program asks for: they run at every level.
NEEDED = ("decompose", "loops", "partition", "patterns", "assign_devices", "choose_regions", "recompute", "offload")
CLEANING = ("dead_code", "simplify", "common_subexpressions", "fold_constants")
# The modes of OneFlow's enable_straighten_algorithm, as the compiler calls these orders.
ORDERS = {"Disable": "program", "SpeedFirst": "speed", "MemoryFirst": "memory", "OverlapCpuGpu": "overlap", "DelayShortGpu": "short_last"}


class PassOptions:
    """A part of GraphConfig."""

    _options: dict[str, Any]

    def __init__(self) -> None:
        self._rewrites: dict[str, int] | None = None  # by pass of the compiler, and by option that rewrites
        self._patterns: list[tuple[str, Any, Any]] = []
        self._asked: dict[str, str] = {}  # options that were switched on by name, and the passes that do them

    def _set(self, name: Any, value: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}: no _set(); a class with options of passes must define it")

    def disable_pass(self, name: Any) -> None:
        """Skip one compiler pass."""
        if name not in _C.pass_names():
            raise ValueError(f"disable_pass: got {name!r}; passes are {_C.pass_names()}")
        disabled = self._options.get("disabled_passes", [])
        self._set("disabled_passes", disabled if name in disabled else [*disabled, name])

    def enable_pass(self, name: str) -> None:
        """Runs one compiler pass that disable_pass() or set_optimization_level() has left out."""
        if name not in _C.pass_names():
            raise ValueError(f"enable_pass: got {name!r}; passes are {_C.pass_names()}")
        self._set("disabled_passes", [n for n in self._options.get("disabled_passes", []) if n != name])

    def set_optimization_level(self, level: int) -> None:
        """How much passes may do: 0, only what a plan cannot do without; 1, also what removes and folds; 2, also what fuses, and norms
        that become a part of weights; 3, the default, also weights that are kept as kernels read them. ONNX Runtime's levels are
        called disable, basic, extended and all. Replaces what disable_pass() and enable_pack_weights() have said."""
        if level not in (0, 1, 2, 3):
            raise ValueError(f"set_optimization_level: got {level!r}; must be 0, 1, 2 or 3")
        kept = {0: NEEDED, 1: NEEDED + CLEANING}.get(level)
        self._set("disabled_passes", [] if kept is None else [name for name in _C.pass_names() if name not in kept])
        self._set("pack_weights", level == 3)

    def _switch(self, option: str, name: str, mode: bool) -> None:
        disabled = [n for n in self._options.get("disabled_passes", []) if n != name]
        self._ask(option, name, mode, "disabled_passes", disabled if mode else [*disabled, name])

    def _ask(self, option: str, name: str, mode: bool, key: str, value: Any) -> None:
        """Sets `key`; where the option is switched on, the report tells what the pass `name` has done."""
        self._set(key, value)
        self._asked.pop(option, None)
        if mode:
            self._asked[option] = name

    def allow_fuse_pad_to_conv(self, mode: bool = True) -> None:
        """Zeros that are put around the input of a convolution become a part of its padding (the pass "fuse_pad"), in training, too.
        It is so by default. Not where the padding is not of zeros, differs from side to side, is more than a window is long, or is
        read by others."""
        self._switch("allow_fuse_pad_to_conv", "fuse_pad", bool(mode))

    def allow_fuse_cast_scale(self, mode: bool = True) -> None:
        """A cast and a product with a number are one kernel, as elementwise ops that follow one another are altogether (the pass
        "fuse_elementwise", which this switches). It is so by default."""
        self._switch("allow_fuse_cast_scale", "fuse_elementwise", bool(mode))

    def enable_straighten_algorithm(self, mode: str = "MemoryFirst") -> None:
        """In which order kernels of a stream run; results are the same.

        "MemoryFirst", the default: what frees memory runs as soon as it can, so that an update follows its gradient at once; as build()
        has it where that keeps less alive. "Disable": as build() has it. "SpeedFirst": what most work still depends on, first.
        "OverlapCpuGpu": what another stream or device waits for, first. "DelayShortGpu": long kernels first. The last three look at
        what kernels are predicted to take, and may need more memory; `plan-viz mem` says how much.
        """
        if mode not in ORDERS:
            raise ValueError(f"enable_straighten_algorithm: got {mode!r}; must be one of {list(ORDERS)}")
        self._set("order", ORDERS[mode])

    def set_concurrency_width(self, n: int) -> None:
        """How many actors run at the same time, on whatever streams, of all steps; 1: one kernel after the other, as a sequential
        program would. 0, the default: each stream runs what is ready, and steps overlap."""
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 0:
            raise ValueError(f"set_concurrency_width: got {n!r}; must be an int of at least 0 (0 = no limit)")
        self._set("concurrency", n)

    def add_pattern(self, name: str, before: Callable[..., Any], after: Callable[..., Any], *examples: Any) -> None:
        """A graph that has what `before` computes, where nobody reads what lies between, computes `after` instead:

            config.add_pattern("silu", lambda x: x * x.sigmoid(), nn.functional.silu, sl.ones(2, 2))

        Both are functions of tensors with one tensor as result, and are traced once with `examples`. Ops, their order, attributes,
        dtypes and constants have to be as they are traced; shapes may differ where attributes do not name them. A place
        whose operands `after` does not take, or where it gives another shape or dtype, is left as it is. Patterns are
        looked for in the order in which they were added, before the compiler's own; whether both compute the same is for
        whoever adds one to know.
        """
        if not isinstance(name, str) or not name or name in (known for known, _, _ in self._patterns):
            raise ValueError(f"add_pattern: got the name {name!r}; must be a text that no other pattern has")
        if not examples:
            raise ValueError(f"add_pattern: '{name}': no examples; give a tensor for each argument")
        self._set("patterns", [*self._options.get("patterns", []), name])
        self._patterns.append((name, _traced(name, before, examples), _traced(name, after, examples)))

    def compiled(self, session: Any, captured: Any, trials: int = 0) -> None:
        """Notes what the compiler has done with the graph `captured`, which was compiled last; and of how many kernels it
        knows what their implementations take."""
        counted = [*_C.pass_names(), "fused additions"] + [f"pattern {name}" for name, _, _ in self._patterns]
        self._rewrites = Counter({name: 0 for name in counted})
        for name, rewrites, _ in session.passes():
            if name in self._rewrites:
                self._rewrites[name] += rewrites
        for option, name in self._asked.items():
            self._rewrites[option] = self._rewrites[name]
        del self._rewrites["fused additions"]
        if self._options.get("generated_kernels"):
            kernels = json.loads(session.plan_json())["kernels"]
            self._rewrites["enable_generated_kernels"] = sum(k["attrs"].get("implementation") == "generated" for k in kernels)
        if self._options.get("kernel_trials"):
            self._rewrites["enable_kernel_trial_run"] = trials
        if self._options.get("amp") is not None:
            self._rewrites["enable_amp"] = sum(node["op"] == "cast" for node in captured.nodes())

    def report(self) -> dict[str, int]:
        """How much each pass of the compiler has rewritten in the plan compiled last, and each option and pattern that rewrites; passes
        that disable_pass() names are left out. Warns of an option that was set, and of a pattern, that has rewritten nothing."""
        if self._rewrites is None:
            raise RuntimeError("config.report: the graph has not been compiled; call it, or compile(), first")
        off = self._options.get("disabled_passes", [])
        why = {"enable_generated_kernels": "no kernel of the graph is one of rows that can be written out",
               "enable_kernel_trial_run": "no kernel of the graph has several implementations",
               "enable_amp": "no function of build() is in sluice.amp.lists.lower",
               **{f"pattern {name}": "the graph has no such place, or what lies between is read elsewhere"
                  for name, _, _ in self._patterns},
               **{option: "the graph has no such place" for option in self._asked}}
        if "patterns" in off:
            why = {name: "the pass 'patterns' is off" if name.startswith("pattern ") else text for name, text in why.items()}
        for name, text in why.items():
            if self._rewrites.get(name) == 0:
                what = f"the {name}" if name.startswith("pattern ") else f"{name}()"
                warnings.warn(f"config.report: {what} has changed nothing: {text}", stacklevel=2)
        return {name: count for name, count in self._rewrites.items() if name not in off}


_lower: Any = None  # traces a function with examples


def trace_patterns_by(lower: Callable[..., Any]) -> None:
    """Tracing stands on the configuration of graphs, and says here how the functions of a pattern are traced."""
    global _lower
    _lower = lower


def _traced(name: str, function: Callable[..., Any], examples: tuple[Any, ...]) -> Any:
    def traced(*tensors: Any) -> Any:
        return function(*tensors)

    traced.__name__ = traced.__qualname__ = name
    return _lower(traced, *examples)._trace.captured
