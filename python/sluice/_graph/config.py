"""Options of a graph: each maps to a parameter of the compiler or of the session."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral, Real
from typing import Any

from sluice import _C
from sluice._base.dim import Dim
from sluice._base.json_file import read_json
from sluice._base.precision import check_precision, precisions
from sluice.amp.autocast_mode import autocast, get_autocast_dtype
from sluice._graph import setters
from sluice._graph.auto_parallel import AutoParallelOptions
from sluice._graph.foreign import ForeignOptions
from sluice._graph.micro_batches import MicroBatches
from sluice._graph.pass_options import PassOptions
from sluice._graph.quantization import QuantizationOptions
from sluice._graph.zero import Zero


# Options that are of the tracing of a graph, or of its calls, and so are in no table.
DEFAULTS = {**setters.DEFAULTS, "gradient_accumulation_steps": 1, "zero": None, "dims": {}, "amp": None,
            "quantization_aware_training": None}


def _dump_file(path: Any) -> dict[str, Any]:
    keys = ("ops", "steps", "tensors", "directory")
    told = read_json(path, "set_dump: ")
    if not isinstance(told, dict) or set(told) - set(keys):
        raise _C.ValueError(f"set_dump: {path}: got {told!r:.80}; must be an object with some of {', '.join(keys)}")
    return told


AUTO_MEMORY = ("Disable", "Slight", "Moderate", "Heavy", "Adaptive")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def bytes_of(what: str, given: Any) -> int:
    """A number of bytes, or a text such as "512MiB"."""
    number, unit = given, "B"
    if isinstance(given, str):
        text = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)?\s*", given)
        if text is None:
            raise ValueError(f"{what}: got {given!r}; must be a number of bytes, or one with a unit of {', '.join(_UNITS)}")
        number, unit = float(text[1]) if "." in text[1] else int(text[1]), text[2] or "B"
    if isinstance(number, bool) or not isinstance(number, Real) or not 0 <= number * _UNITS[unit] < 2**63:
        raise ValueError(f"{what}: got {given!r}; must be a number of bytes, at least 0 and below 2**63")
    return int(number * _UNITS[unit])


class GraphConfig(setters.Setters, PassOptions, AutoParallelOptions, ForeignOptions, QuantizationOptions):
    """Set before the first call."""

    def __init__(self) -> None:
        super().__init__()
        self._options = {}
        self._call_fixes = []
        self.arenas = None
        self._frozen = False

    def _set(self, name: Any, value: Any) -> None:
        if self._frozen:
            raise RuntimeError(f"graph.config: '{name}' cannot be set after the graph was compiled; set options before the first call")
        self._options[name] = value

    def set_cost_file(self, path: Any) -> None:
        """Sets the file in which Graph.save_costs wrote how long kernels took on this machine: the compiler prefers it to
        its predictions, for each kernel of the same op, attributes, operands, device and threads, also of other graphs. A
        file that is not there yet changes nothing. All ranks of a job need the same."""
        self._set("cost_file", os.fspath(path))

    def enable_cost_cache(self, directory: Any = None) -> None:
        """Prefers what kernels took on this machine to predictions. The first 16 calls of a graph that has kernels of which nothing is
        known are measured, and kept in a file of the machine for whatever is compiled later. directory: of the file; by default
        ~/.cache/sluice/costs.

        Not in jobs of several ranks, whose plans have to be the same, nor while enable_trace() records for somebody else.
        """
        self._set("cost_cache", "" if directory is None else os.fspath(directory))

    def enable_compress_memory(self, mode: bool = True) -> None:
        """Search for a packing of buffers without gaps where the greedy orders leave some: compiling may take some seconds more,
        and graphs of more than 2,000 buffers are not searched. This and enable_choose_best_memory_allocation() replace each other.
        `plan-viz mem` shows how far the arenas are from the most bytes alive at once, which no packing is below."""
        self._set("packing", "search" if mode else "quick")

    def enable_choose_best_memory_allocation(self, mode: bool = True) -> None:
        """Pack buffers in every greedy order, however large the graph, and take the smallest arena; by default a large graph takes
        the first that is near enough. The size that each order needs is in the log (`debug`, area `compiler`)."""
        self._set("packing", "every" if mode else "quick")

    def set_memory_budget(self, bytes: Any) -> None:
        """The plan is refused when it needs more; the error names the smallest budget that works, and the largest registers. bytes: a
        number, or a text with a unit, "512MiB". See enable_auto_memory() for plans that are made to fit."""
        self._set("memory_budget", bytes_of("set_memory_budget", bytes))

    def enable_auto_memory(self, mode: str = "Adaptive") -> None:
        """Values that the backward pass reads may be computed again instead of kept, without a checkpoint that says so;
        results are the same.

        "Disable", the default: what checkpoints say. "Slight": what is quick to compute; products and convolutions are kept. "Moderate":
        the same in stretches, between which nothing else is kept. "Heavy": in the stretches nothing is kept, which takes about a
        forward pass more. "Adaptive": the first of these that fits set_memory_budget(), with one step in flight if need be.
        """
        if not isinstance(mode, str) or mode.capitalize() not in AUTO_MEMORY:  # OneFlow writes them small
            raise ValueError(f"enable_auto_memory: got {mode!r}; must be one of {list(AUTO_MEMORY)}")
        self._set("auto_memory", mode.lower())

    def set_cudnn_buf_limit_mbyte(self, mbyte: int) -> None:
        """No kernel may have a workspace of more than so many MiB, on whatever device. If an op's usual kernel needs more,
        one that fits is taken, which may be slower; without one the graph is refused with the op and its bytes. 0: no
        limit."""
        if mbyte < 0:
            raise ValueError(f"set_cudnn_buf_limit_mbyte: got {mbyte}; must be at least 0 (0 = no limit)")
        self._set("workspace_limit", int(mbyte) << 20)

    def enable_generated_kernels(self, mode: bool = True) -> None:
        """Rows of elementwise ops and reductions that the compiler has fused (softmaxes and norms that are written out) are computed by
        C++ that is written and compiled for them: `Graph.kernel_sources()` shows it. Results are the same, to the bit. On CPUs, for rows
        of float32 of more than 128 and at most 4,096 elements; it needs g++, or another name of it in `$CXX`, and about
        a second for each kernel. Compiled code is kept in files next to those of sluice.cache (`SLUICE_CACHE=off`: it is
        not). If a saved plan is loaded on a machine without a compiler, the usual kernels serve."""
        if mode and not _C.host_compiler():
            raise RuntimeError("enable_generated_kernels: no g++; install it, or name it with the variable CXX")
        self._set("generated_kernels", bool(mode))

    def enable_cudnn_conv_heuristic_search_algo(self, mode: bool = True) -> None:
        """OneFlow's name: True, the default, takes what the library thinks fastest; False is enable_kernel_trial_run()."""
        self.enable_kernel_trial_run(not mode)

    def enable_cudnn_attention(self, mode: bool = True) -> None:
        """On GPUs, attention of 16-bit floats without a mask and without dropout (`is_causal` may be set) is cuDNN's, forward and
        backward, where cuDNN is 9.21 or newer and has it: heads of a multiple of 8 numbers, 256 at most. Off by default: cuDNN does not
        say in which order it adds gradients up, so their last bits may differ from run to run. The CPU has none such."""
        self._set("deterministic_attention", not mode)

    def set_quota(self, register: Any, n: int) -> None:
        """Slots of one register, by its name in the plan."""
        self._set("quotas", {**self._options.get("quotas", {}), register: int(n)})

    def set_device(self, device: Any) -> None:
        """Sets the device of ops that name none themselves."""
        self._set("device", _C.parse_device(str(device)))

    def set_devices(self, *devices: Any) -> None:
        """Devices in order of priority, as ONNX Runtime has its execution providers: an op that names no device runs on the first whose
        backend has a kernel for it, and on that of set_device() where none has. The compiler adds the copies in between. `plan-viz
        devices` shows where each kernel runs and why; so does `SLUICE_LOG=compiler=debug`."""
        if not devices:
            raise ValueError("set_devices: got no devices; name them in the order in which they are to be tried")
        order = [_C.parse_device(str(device)) for device in devices]
        twice = {str(device) for device in order if order.count(device) > 1}
        if twice:
            raise ValueError(f"set_devices: got {', '.join(sorted(twice))} twice; name each device once")
        self._set("devices", order)

    def set_cores(self, n: int) -> None:
        """Cores of the kernels of a compute stream; without it the streams of a CPU share its cores evenly."""
        self._set("cores", int(n))

    def set_float32_matmul_precision(self, precision: str) -> None:
        """As sluice.set_float32_matmul_precision, for this graph."""
        self._set("float32_matmul_precision", check_precision("float32_matmul_precision", precision))

    def set_float32_conv_precision(self, precision: str) -> None:
        """"highest": convolutions in float32; "high": their operands may be rounded to TF32. See sluice.backends.cudnn."""
        self._set("float32_conv_precision", check_precision("float32_conv_precision", precision))

    def enable_amp(self, mode: bool = True, *, dtype: Any = None) -> None:
        """Mixed precision: build() is traced as in a region of sluice.autocast, so what is best in few bits computes in `dtype` and
        the rest in float32; sluice.amp.lists says which, and can be changed. Parameters, what optimizers keep, and updates stay in
        float32. dtype: bfloat16 or float16; by default bfloat16, on CUDA float16, which wants Graph.set_grad_scaler() too."""
        if not mode:
            return self._set("amp", None)
        chosen = get_autocast_dtype(str(self._options.get("device", "cpu:0"))) if dtype is None else dtype
        if chosen not in (_C.bfloat16, _C.float16):
            raise ValueError(f"enable_amp: dtype is {dtype}; must be sluice.bfloat16 or sluice.float16")
        self._set("amp", chosen.name)

    def set_dump(self, what: Any = None, *, ops: Any = (), steps: Any = None, tensors: bool = False, directory: Any = "dump") -> None:
        """Write what kernels compute to files, as numbers about each output or as a whole. `plan-viz compare A B` finds where two
        such runs part. MindSpore's dump.

        what: a JSON file with the other arguments as its keys, or None.
        ops: patterns of ops or kernels, such as "conv*"; all by default.
        steps: a step, counted from 0, or the first and the last one; all by default.
        tensors: each output also as a .npy file; else stats.csv alone, with least, greatest, mean, deviation, NaNs.
        """
        if what is not None:
            return self.set_dump(**_dump_file(what))
        ops = [ops] if isinstance(ops, str) else list(ops)
        first, last = (steps if isinstance(steps, (tuple, list)) and len(steps) == 2 else (steps, steps))
        parts = [f"ops={op}" for op in ops] + ([] if steps is None else [f"steps={first}-{last}"])
        parts += ["tensors" if tensors else "stats", f"dir={directory}"]
        wrong = [part for part in parts if "," in part]
        if wrong:
            raise ValueError(f"set_dump: got {wrong[0]!r}; patterns and the directory must be without commas")
        self._set("dump", ",".join(parts))

    def set_gradient_accumulation_steps(self, n: int) -> None:
        """A call is a step of n micro-batches: inputs are cut into n equal parts along axis 0 (scalars are given whole),
        build() sees one part, and the optimizers update once, with the mean of the n gradients. Each result has those of
        all n, one after another along axis 0; of scalars, n numbers. Parameters and other values that an optimizer updates
        are returned as they are then.
        """
        self._set("gradient_accumulation_steps", MicroBatches(n).n)

    def set_submit_timeout(self, seconds: Any) -> None:
        """A call at capacity waits so long, then raises TimeoutError; 0 = raise at once, None = wait."""
        self._set("submit_timeout", seconds)

    def set_inline_up_to(self, seconds: float) -> None:
        """Parts of a step that are predicted to take no longer run in the calling thread; 2e-6 by default.

        No thread is woken for them, which saves the time of a small net's call. So long a call may take before it returns, and the
        wait timeout does not hold meanwhile. Functions of Python, and kernels of extensions and of GPUs, never run so.
        """
        if not 0 <= seconds < float("inf"):
            raise _C.ValueError(f"set_inline_up_to: seconds: got {seconds!r}; must be a finite number, and not negative")
        self._set("inline_up_to", float(seconds))

    def enable_zero(self, mode: bool = True, *, stage: int = 2, shard_min_size: int = 1024, shard_restore_level: int = 1,
                    axis: str | None = None) -> None:
        """Lets each device of a broadcast parameter's placement keep a part of what all of them would keep (ZeRO). Results
        are the same.

        stage: 1 and 2 split the optimizer's state; gradients are then summed up in parts, and nobody keeps a whole one, so
            that the two are one. 3 also splits the parameters; they are split(0) from then on.
        shard_min_size: elements; parameters with smaller parts, or with fewer rows than devices, stay as they are.
        shard_restore_level: what build() sees in stage 3: 1 and 2 the whole, gathered once a step; 0 the parts, of which
            the compiler makes what moves the fewest bytes.
        axis: of a mesh, the axis along which the parts lie; by default the first one along which the parameter is the same everywhere.
        """
        zero = dataclasses.replace(self.zero or Zero(), stage=stage, min_size=shard_min_size, restore_level=shard_restore_level, axis=axis)
        self._set("zero", zero if mode else None)

    def set_zero_redundancy_optimizer_mode(self, mode: str = "distributed_split") -> None:
        """enable_zero by mode: "distributed_split", or "non_distributed": each parameter's state whole on one of its devices."""
        self._set("zero", dataclasses.replace(self.zero or Zero(), mode=mode))

    def set_zero_redundancy_optimizer_min_size_after_split(self, value: int) -> None:
        """shard_min_size of enable_zero."""
        self._set("zero", dataclasses.replace(self.zero or Zero(), min_size=value))

    def set_dims(self, dims: dict[str, dict[int, Dim]]) -> None:
        """Axes of arguments whose sizes differ from call to call: {"x": {0: batch}}, with sluice.Dim objects.

        Plans for all buckets of the dims are made at the first call (or compile()), for which build() is traced once each;
        they share variables and memory, and the smallest that fits runs a call. An axis of a result is taken for a dim's
        when it is as long in every plan. Graphs that update variables may only have dims with fit="exact".
        """
        for name, axes in dims.items():
            if not isinstance(axes, dict) or not all(isinstance(a, Integral) and isinstance(d, Dim) for a, d in axes.items()):
                raise TypeError(f"set_dims: got {axes!r} for '{name}'; must be a dict of sluice.Dim by axis")
        self._set("dims", {name: dict(axes) for name, axes in dims.items()})

    def donate_inputs(self, *names: str) -> None:
        """Arguments of build() whose memory a call takes for good (torch has none, JAX donate_argnums): "params", or within nests
        "state.m"; the name of a nest means all that is in it.

        The step reads and writes the tensor's own memory, and a result of as many bytes lies there where the plan allows it: neither
        takes memory of the graph, and neither is copied. The tensor, and every other one that shares its memory, is lost with the
        call: reading or writing it raises RuntimeError. `clone()` what is needed afterwards.

        A tensor that cannot be donated is refused with ValueError before anything runs, and stays as it is: tensors that
        require grad, parameters and buffers, views of a part of their memory, memory borrowed from or shared with NumPy or
        DLPack, tensors of other devices, one memory for two arguments. A call that raises has taken nothing. When a step
        fails later, what was donated to it is lost. Arguments that the plan would have to copy are refused with
        NotImplementedError when the graph is compiled.
        """
        if not names or not all(isinstance(name, str) and name for name in names):
            raise TypeError(f"donate_inputs: got {names!r}; must be names of arguments of build()")
        self._set("donated", [*dict.fromkeys([*self.donated, *names])])

    def set_arenas(self, arenas: Any) -> None:
        """Memory for what the graph computes that it shares with other graphs: a sluice.SharedArenas, which is as large as the
        largest of them needs. One of the graphs at a time then has steps in flight; calls of another wait for them, as long as
        the submit timeout says. Parameters, and all else that a graph keeps from step to step, are its own."""
        if not isinstance(arenas, _C.SharedArenas):
            raise TypeError(f"set_arenas: got {type(arenas).__name__}; must be a sluice.SharedArenas")
        if self._frozen:
            raise RuntimeError("graph.config: 'arenas' cannot be set after the graph was compiled; set options before the first call")
        self.arenas = arenas

    @property
    def dims(self) -> dict[str, dict[int, Dim]]:
        return self._options.get("dims", {})

    @property
    def donated(self) -> list[str]:
        return self._options.get("donated", [])

    @property
    def zero(self) -> Zero | None:
        return self._options.get("zero")

    def set_dump_dir(self, directory: Any) -> None:
        """Write the graph before and after each pass."""
        self._set("dump_dir", str(directory))

    def apply_fix(self, fix: Any) -> None:
        """Makes the change that a refusal suggests (`error.fix`); the next call compiles with it."""
        if "option" in fix and "key" in fix:
            entries = dict.fromkeys(self._options.get(fix["option"], ()), True)
            entries.update(self._options[fix["option"]] if isinstance(self._options.get(fix["option"]), dict) else {})
            entries.pop(fix["key"], None)
            if fix["value"] is not None:
                entries[fix["key"]] = fix["value"]
            self._set(fix["option"], list(entries) if isinstance(DEFAULTS[fix["option"]], list) else entries)
        elif "option" in fix:
            self._set(fix["option"], fix["value"])
        elif "call" in fix:
            self._call_fixes.append(dict(fix))
        else:
            raise ValueError(f"apply_fix: {fix} changes the program or a plan file, not an option of the graph; "
                             "edit that yourself")

    @property
    def options(self) -> Any:
        """The options that differ from the defaults, as the plan keeps them (paths are not kept)."""
        return {k: v for k, v in sorted(self._options.items()) if k not in DEFAULTS or v != DEFAULTS[k]}

    def for_session(self) -> Any:
        """The options as the compiler takes them; what is left to the process's setting is settled."""
        self._options = {**precisions(), **self._options}
        ours = ("zero", "gradient_accumulation_steps", "dims", "cost_cache", "quantization_aware_training")
        options = {k: v for k, v in self._options.items() if v is not None and k not in ours}
        return {**options, "patterns": list(self._patterns)} if self._patterns else options

    def freeze(self) -> None:
        self._frozen = True

    def precision(self) -> AbstractContextManager[Any]:
        """The region that build() runs in."""
        amp = self._options.get("amp")
        device = str(self._options.get("device", "cpu:0")).partition(":")[0]
        return nullcontext() if amp is None else autocast(device, getattr(_C, amp))

    @property
    def cost_cache(self) -> str | None:
        return self._options.get("cost_cache")

    @property
    def micro_batches(self) -> MicroBatches:
        return MicroBatches(self._options.get("gradient_accumulation_steps", 1))

    @property
    def submit_timeout(self) -> Any:
        value = self._options.get("submit_timeout")
        return -1.0 if value is None else float(value)

    def __getattr__(self, name: str) -> Any:
        from sluice._names.left_out import left_out

        why = left_out(name, "sluice.nn.Graph.config")
        near = difflib.get_close_matches(name, [n for n in dir(type(self)) if not n.startswith("_")], n=1)
        hint = f": Sluice leaves out {why.what}; {why.instead}" if why else f"; did you mean '{near[0]}'?" if near else ""
        raise AttributeError(f"graph.config has no option '{name}'{hint}")

    def __repr__(self) -> str:
        return "config(" + ", ".join(f"{k}={v!r}" for k, v in self.options.items()) + ")"
