"""Names of torch that Sluice leaves out on purpose, and what to use instead: errors tell it, `sluice.compat` lists it."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional


class LeftOut(NamedTuple):
    what: str
    instead: str
    pattern: str  # of names; searched
    counts: bool = False  # as missing, in the report


LEFT_OUT = [
    LeftOut("quantized tensors", "use float16 or bfloat16 weights",
            r"quantize|^q_|^q(int|uint)|fbgemm|int_repr|^choose_qparams|fake_quant"),
    LeftOut("sparse layouts", "use dense tensors with index_select, index_add and embedding",
            r"sparse|_csr|_csc|_bsr|_bsc|coalesce|(ccol|col|crow|row|^)_?indices(_copy)?$|^values(_copy)?$|"
            r"^(hspmm|smm|spmm|sspaddmm|dense_dim)$"),
    LeftOut("a backend's own functions", "use the ordinary function, whose kernels the device chooses",
            r"cudnn|miopen|mkldnn|xla|vulkan|_mps|_ipu|_xpu|_hpu|_maia|_mtia|^(ipu|xpu|hpu|mtia)$"),
    LeftOut("TorchScript and tracing", "use sluice.nn.Graph, which traces and compiles",
            r"^(import_ir|parse_|merge_type|unify_type|fork$|wait$|init_num_threads|sym_|vitals|compiled_with|set_vital|"
            r"read_vitals|export|thread_safe_generator|compile$)"),
    LeftOut("internal forms of other functions", "use the public function",
            r"^_|^(native|batch_norm_(backward|elemt|gather|stats|update))|slice_inverse|^(lift|rnn_|lstm|gru|"
            r"grid_sampler|affine_grid_generator|hash_tensor|constant_pad_nd|convolution|max_pool1d_with_indices|norm_except_dim|"
            r"feature_dropout)"),
    LeftOut("floats of 8 bits and fewer, and further integers", "use float16, bfloat16, int64 or uint8",
            r"^float[468]_|^(u?int[1-7]|uint16|uint32|uint64|bits\d.*)$", counts=True),
    LeftOut("complex numbers of two float16", "use complex64", r"^(complex32|chalf)$", counts=True),
    LeftOut("storages and named dimensions", "use tensors, views of them, and data_ptr()",
            r"(?<!is_)storage|share_memory|^(set_$|set_data|module_load|refine_names|rename|align_|names$|has_names|record_stream|map_|"
            r"map2_|apply_$|resize_?$|reinforce|volatile|grad_dtype|is_shared)"),
    LeftOut("helpers of torch's own code", "they have no meaning here",
            r"torch_function|boolean_dispatch|assert_int_or_pair|classproperty|^(profiler_allow|prepare_multiprocessing|"
            r"get_file_path|enforce_grad_layout|argument_validation|runtime_validation|DFIterDataPipe|DataChunk|NestedIOFunction|"
            r"debug_unwrap|check_backward_validity|detach_variable|get_device_states|noop_context_fn|const_data_ptr|"
            r"invert_permutation)"),
    LeftOut("dispatch keys, Triton kernels and sizes that only a fake could know", "use sluice.library.custom_op and register_kernel; a "
            "result with fewer rows than there is room for is a sluice.host_function with a sluice.Dim",
            r"^(triton_op|wrap_triton|fallthrough_kernel|get_kernel|register_torch_dispatch|get_ctx)$"),
    LeftOut("switches of torch's process", "they have no meaning here",
            r"(warn_always|deterministic_debug|anomaly_(check|enabled)|flush_denormal|interop_threads|"
            r"autocast_(decrement|increment))"),
]


def left_out(name: str) -> Optional[LeftOut]:
    """Why `name` is left out; None: it is not."""
    return next((entry for entry in LEFT_OUT if re.search(entry.pattern, name)), None)


def missing(module: str, name: str) -> AttributeError:
    """The error of a module that has no such name, with what to use instead where that is known."""
    text = f"module '{module}' has no attribute '{name}'"
    why = None if name.startswith("_") else left_out(name)
    return AttributeError(text if why is None else f"{text}: {why.what} are left out; {why.instead}")
