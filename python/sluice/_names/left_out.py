"""Names of torch and OneFlow that Sluice leaves out on purpose, and what to use instead: errors tell it, `sluice.compat` lists it."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional


class LeftOut(NamedTuple):
    what: str
    instead: str
    pattern: str  # of names; searched
    counts: bool = False  # as missing, in the report
    where: str = ""  # of the modules or classes that are meant; searched in "sluice.nn" and the like


def _words(names: str) -> str:
    """The pattern of these names alone."""
    return f"^({'|'.join(names.split())})$"


LEFT_OUT = [
    LeftOut("quantized tensors", "sluice.quantization.quantize makes a graph of 8-bit integers of a whole model",
            r"quantize|^q_|^q(int|uint)|fbgemm|int_repr|^choose_qparams|fake_quant"),
    LeftOut("sparse layouts beyond COO, CSR and CSC", "use methods of sparse tensors and sluice.sparse, or to_dense()",
            r"_bsr|_bsc|sparse_resize|_sparse_|sparse_support|^sspaddmm$|indices_copy$|^values_copy$"),
    LeftOut("parts of dense tensors that sparse ones have", "use to_sparse(), whose result has them",
            _words("ccol_indices coalesce col_indices crow_indices dense_dim indices row_indices smm sparse_dim values"), where="Tensor$"),
    LeftOut("a backend's own functions", "use the ordinary function, whose kernels the device chooses",
            r"cudnn|miopen|mkldnn|xla|vulkan|_mps|_ipu|_xpu|_hpu|_maia|_mtia|^(ipu|xpu|hpu|mtia)$"),
    LeftOut("TorchScript and tracing", "use sluice.nn.Graph, which traces and compiles",
            r"^(import_ir|parse_|merge_type|unify_type|fork$|wait$|init_num_threads|sym_|vitals|compiled_with|set_vital|"
            r"read_vitals|thread_safe_generator)"),
    LeftOut("internal forms of other functions", "use the public function",
            r"^_|^(native|batch_norm_(backward|elemt|gather|stats|update))|slice_inverse|^(lift|rnn_|lstm|gru|"
            r"grid_sampler|affine_grid_generator|hash_tensor|constant_pad_nd|convolution|max_pool1d_with_indices|norm_except_dim)"),
    LeftOut("floats of 4 bits, scales of 8, and further integers", "use float16, bfloat16 or int64, or uint8 for the bits",
            r"^float[46]_|^float8_e8m0|^(u?int[1-7]|uint16|uint32|uint64|bits\d.*)$", counts=True),
    LeftOut("complex numbers of two float16", "use complex64", r"^(complex32|chalf)$", counts=True),
    LeftOut("legacy constructors of complex tensors", "use tensor(data, dtype=complex64)", r"^Complex(Float|Double)Tensor$"),
    LeftOut("storages and named dimensions", "use tensors, views of them, and data_ptr()",
            r"(?<!is_)storage|share_memory|^(set_$|set_data|module_load|refine_names|rename|align_|names$|has_names|map_|"
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
            r"(warn_always|deterministic_debug|anomaly_(check|enabled)|interop_threads|"
            r"autocast_(decrement|increment))"),
    # These are torch's, one by one.
    LeftOut("older names of sparse products", "use sluice.sparse.mm and sluice.sparse.addmm", _words("dsmm hsmm saddmm")),
    LeftOut("products in floats of 8 bits", "use F.grouped_mm, or matmul, in bfloat16", _words("scaled_mm scaled_grouped_mm")),
    LeftOut("contexts that see every op", "call checkpoint() on the parts to compute again",
            _words("create_selective_checkpoint_contexts SelectiveCheckpointContext CheckpointPolicy"), where="checkpoint$"),
    LeftOut("nested and named tensors", "use padding with a mask, and [...]", _words("to_padded_tensor index"), where="Tensor$"),
    LeftOut("quantized tensors", "sluice.quantization.quantize makes a graph of 8-bit integers of a whole model", _words("qscheme"), where="Tensor$"),
    LeftOut("tools of torch's own profiler", "use profile.export_chrome_trace()",
            _words("ExecutionTraceObserver itt KinetoStepTracker RecordScope"), where="profiler$"),
    # These are OneFlow's.
    LeftOut("OneFlow's readers of files and buffers of several shapes",
            "use sluice.utils.data, lists of tensors, and host_function for a graph's inputs",
            r"^(OF|Of)[rR]ecord|^(COCOReader|RawReader|GPTIndexedBinDataReader|gen_tensor_buffer)$|tensor_buffer|^record$"),
    LeftOut("OneFlow's images in buffers", "use F.interpolate, flip() and arithmetic on tensors", ".", where="nn.image$"),
    LeftOut("OneFlow's jobs before nn.Graph", "use sluice.nn.Graph and its config", _words("FunctionConfig function_config")),
    LeftOut("OneFlow's helpers of its own code", "they have no meaning here",
            _words("CUDA_MODULE_LOADING ExitHook atexit_hook hook is_deprecated oneflow_deprecate oneflow_internal_path "
                   "oneflow_python_base_dir stateful_op")),
    LeftOut("OneFlow's choices of how tensors move", "use to_global(); the compiler chooses the collectives", _words("boxing"),
            where="^sluice$"),
    LeftOut("losses over classes that ranks sample", "use cross_entropy of a weight that is split by to_global()",
            _words("distributed_partial_fc_sample DistributedPariticalFCSample")),
    LeftOut("modules of one collective", "use sluice.distributed.all_reduce", _words("AllReduce"), where="nn$"),
    LeftOut("groups of parameters in one memory",
            "graphs update all parameters in one pass; nn.utils.parameters_to_vector gives a vector",
            _words("ContiguousParamsGroup")),
    LeftOut("tensors whose memory comes and goes", "use cpu() and to()", _words("offload load"), where="Tensor$"),
    LeftOut("names of before OneFlow 0.6", "use to_global()", _words("to_consistent"), where="Tensor$"),
    LeftOut("ids and notes of OneFlow's runtime", "they have no meaning here; see placement, sbp and grad_fn",
            _words("global_id _copy_from_numpy _copy_to_numpy _meta_repr _ref_index _ref_tensor "
                   "_register_post_grad_accumulation_hook "
                   "_register_storage_delete_hook _zero_grad_"), where="Tensor$"),
    LeftOut("arguments that OneFlow's pages list as methods",
            "call clone(), size(), or zero_grad(set_to_none=True) of the module",
            _words("beta copy dim0 idx offset other set_to_none"), where="Tensor$"),
    LeftOut("threads for eager calls", "eager calls compute where they are made; use an nn.Graph, whose calls return at once",
            _words("asyncs Thread thread")),
    LeftOut("connections by RDMA", "ranks are connected by TCP, and GPUs by NCCL", _words("init_rdma destory_rdma")),
    LeftOut("modes that make all tensors global", "call to_global() on those that are meant", _words("global_mode "
                                                                                                     "current_global_mode")),
    LeftOut("parts of OneFlow's own code", "use flip()", _words("reverse"), where="rnn$"),
    LeftOut("OneFlow's trainer classes", "write the loop: docs/migrating-from-pytorch.md has one", _words("model"),
            where="^sluice$"),
    LeftOut("memory that is computed again by itself", "use utils.checkpoint, or graph.config.set_memory_budget()",
            _words("remat"),
            where="^sluice$"),
    LeftOut("embedding tables on disks", "use sluice.data.DiskTable, or nn.Embedding with a weight that is split by to_global()",
            _words("one_embedding"), where="^sluice$"),
    LeftOut("a device's own tensor classes", "use device='cuda'",
            r"^(Bool|Byte|Char|Double|Float|Half|Int|Long|Complex\w+)Tensor$", where="cuda$"),
    LeftOut("answers about GPUs", "sluice.info describes the devices; streams and events are the runtime's",
            r"^(get_device_|mem_get_info|Event$|default_generators|[gs]et_rng_state)", where="cuda$"),
    LeftOut("OneFlow's steps of compiling", "use Graph.compile() and sluice.save(graph, path)", _words("build_graph "
                                                                                           "finish_compile_and_init_runtime"),
            where="nn.Graph$"),
    LeftOut("plans that one graph shares with another",
            "use dims: graph.config and docs/migrating-from-pytorch.md say how one graph serves "
            "several shapes", _words("enable_shared share_from"), where="nn.Graph$"),
    LeftOut("switches that say what a graph is for", "a graph trains when build() has a backward pass and it has an optimizer",
            _words("training"), where="Graph(.config)?$"),
]


def left_out(name: str, where: str = "sluice") -> Optional[LeftOut]:
    """Why `name` is left out of a module or class of Sluice; None: it is not."""
    return next((entry for entry in LEFT_OUT if re.search(entry.pattern, name) and re.search(entry.where, where)), None)


def missing(module: str, name: str) -> AttributeError:
    """The error of a module that has no such name, with what to use instead where that is known."""
    text = f"module '{module}' has no attribute '{name}'"
    why = None if name.startswith("_") else left_out(name, module)
    return AttributeError(text if why is None else f"{text}: Sluice leaves out {why.what}; {why.instead}")


class Absent:
    """In the place of a method that is left out: says so, and hasattr() is False."""

    def __init__(self, owner: str, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, cls: object = None) -> None:
        why = left_out(self._name, self._owner)
        assert why is not None
        raise AttributeError(f"'{self._owner.rpartition('.')[2]}' object has no attribute '{self._name}': Sluice leaves out "
                             f"{why.what}; {why.instead}")


def absent(owner: str) -> dict[str, Absent]:
    """By name, what to put in the place of the methods that are left out of a class."""
    return {name: Absent(owner, name) for entry in LEFT_OUT if entry.where and re.search(entry.where, owner) and entry.pattern.endswith(")$")
            for name in re.findall(r"\w+", entry.pattern) if re.search(entry.pattern, name)}
