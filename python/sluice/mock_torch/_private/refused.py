"""Names that packages import of torch and that refuse when they are used, by module, with what to use instead."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from sluice.mock_torch._private.made import module, refusing

# What to use instead: lines of a module and its names.
_TABLE = {
    "use sluice.nn.Graph or sluice.compile, which trace; `sluice.lower` gives the graph as text": """
torch.fx._pytree: register_pytree_flatten_spec tree_flatten_spec
torch.fx.experimental.proxy_tensor: get_proxy_mode make_fx
torch.fx.experimental.symbolic_shapes: GuardOnDataDependentSymNode ShapeEnv free_symbols free_unbacked_symbols
torch.fx.passes.infra.pass_base: PassBase PassResult
torch.export: UnflattenedModule export_for_inference export_for_training register_dataclass unflatten
torch.export.decomp_utils: CustomDecompTable
torch.jit: RecursiveScriptModule ScriptFunction ScriptModule TopLevelTracedModule trace_module
torch.jit.mobile: _load_for_lite_interpreter
torch.jit._recursive: concrete_type_store
torch._C: Block Graph Node ScriptFunction ScriptModule Value
torch._dynamo: OptimizedModule
torch._dynamo.eval_frame: OptimizedModule is_dynamo_supported
torch._inductor.exc: InductorError
torch._subclasses.fake_tensor: FakeTensor FakeTensorMode""",
    "use sluice.save of a graph, or sluice.onnx where it is there": """
torch.onnx: ExportOptions ONNXProgram export
torch.onnx.utils: model_signature""",
    "use sluice.quantization": """
torch.ao.quantization: DeQuantStub QConfig QuantStub QuantWrapper convert default_observer default_per_channel_weight_observer
torch.ao.quantization: default_weight_observer fuse_modules fuse_modules_qat get_default_qat_qconfig get_default_qconfig prepare prepare_qat
torch.nn.quantized: FloatFunctional
torch.ao.nn.quantized: FloatFunctional""",
    "use sluice.distributed, placements and nn.Graph (docs/distributed.md)": """
torch.distributed: DeviceMesh FileStore GroupMember P2POp ProcessGroup Store TCPStore group batch_isend_irecv init_device_mesh
torch.distributed.tensor: DTensor distribute_module distribute_tensor
torch.distributed._tensor: DTensor distribute_tensor
torch.distributed.tensor.parallel: ColwiseParallel PrepareModuleInput RowwiseParallel SequenceParallel loss_parallel parallelize_module
torch.distributed._tensor.experimental: implicit_replication
torch.distributed.tensor.experimental: context_parallel implicit_replication
torch.distributed.tensor.placement_types: _StridedShard
torch.distributed.device_mesh: DeviceMesh init_device_mesh
torch.distributed.distributed_c10d: ProcessGroup Store _get_default_group _pg_map
torch.distributed.fsdp: BackwardPrefetch CPUOffload CPUOffloadPolicy FSDPModule FullOptimStateDictConfig FullStateDictConfig
torch.distributed.fsdp: FullyShardedDataParallel MixedPrecision MixedPrecisionPolicy OffloadPolicy OptimStateKeyType ShardingStrategy
torch.distributed.fsdp: ShardedOptimStateDictConfig ShardedStateDictConfig StateDictType fully_shard register_fsdp_forward_method
torch.distributed.fsdp.api: FullOptimStateDictConfig FullStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig StateDictType
torch.distributed.fsdp.fully_sharded_data_parallel: CPUOffload FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel
torch.distributed.fsdp.fully_sharded_data_parallel: FlatParameter MixedPrecision ShardedOptimStateDictConfig ShardedStateDictConfig
torch.distributed.fsdp.fully_sharded_data_parallel: ShardingStrategy StateDictType
torch.distributed.fsdp.sharded_grad_scaler: ShardedGradScaler
torch.distributed.fsdp.wrap: ModuleWrapPolicy _or_policy enable_wrap lambda_auto_wrap_policy size_based_auto_wrap_policy
torch.distributed.fsdp.wrap: transformer_auto_wrap_policy
torch.distributed._composable.fsdp: FSDPModule fully_shard
torch.distributed.algorithms._checkpoint.checkpoint_wrapper: CheckpointImpl CheckpointWrapper apply_activation_checkpointing
torch.distributed.algorithms._checkpoint.checkpoint_wrapper: checkpoint_wrapper offload_wrapper
torch.distributed.algorithms.join: Join
torch.distributed.algorithms.model_averaging.averagers: ModelAverager PeriodicModelAverager
torch.distributed.optim: DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer
torch.distributed.pipelining: ScheduleGPipe SplitPoint pipeline
torch.distributed.rpc: TensorPipeRpcBackendOptions init_rpc rpc_async shutdown
torch.distributed.nn: all_gather all_reduce
torch.distributed.nn.functional: all_gather all_reduce
torch._C._distributed_c10d: ProcessGroup Reducer Store""",
    "use sluice.save and sluice.load of each rank's state": """
torch.distributed.checkpoint: FileSystemReader FileSystemWriter load load_state_dict save save_state_dict
torch.distributed.checkpoint.state_dict: StateDictOptions get_model_state_dict get_optimizer_state_dict set_model_state_dict
torch.distributed.checkpoint.state_dict: set_optimizer_state_dict
torch.distributed.checkpoint.default_planner: DefaultLoadPlanner DefaultSavePlanner
torch.distributed.checkpoint.format_utils: _EmptyStateDictLoadPlanner _load_state_dict
torch.distributed.checkpoint.optimizer: load_sharded_optimizer_state_dict
torch.distributed.checkpoint.state_dict_loader: _load_state_dict""",
    "eager operations of a device are queued in one order, and graphs have streams of their own (sluice.stream)": """
torch.cuda: CUDAGraph Event Stream StreamContext graph
torch: Event Stream""",
    "there is no such thing as one task per call; call it": """
torch: Future
torch.futures: Future collect_all wait_all""",
    "use dense tensors and masks": """
torch.nested: as_nested_tensor nested_tensor
torch.masked: MaskedTensor as_masked_tensor masked_tensor""",
    "use sparse_coo_tensor or sparse_csr_tensor, whose elements stand alone": """
torch: sparse_bsr_tensor sparse_bsc_tensor""",
    "custom code is a sluice.library.custom_op, or a shared library (docs/custom-ops.md)": """
torch.utils.cpp_extension: BuildExtension CUDAExtension CppExtension load load_inline""",
    "sizes are numbers here": """
torch: SymBool SymFloat SymInt""",
    "use a Dataset and DataLoader": """
torch.utils.data.datapipes.iter: Mapper Shuffler
torch.utils.data.datapipes.iter.combinatorics: ShufflerIterDataPipe
torch.utils.data.graph_settings: apply_shuffle_settings""",
    "use functions of tensors": """
torch.overrides: TorchFunctionMode
torch.utils._python_dispatch: TorchDispatchMode""",
    "use sluice.profiler": """
torch.utils.flop_counter: FlopCounterMode
torch.autograd.profiler: EventList emit_nvtx
torch.cuda.profiler: profile""",
    "use sluice.UntypedStorage": """
torch: ByteStorage""",
    "use sluice.load": """
torch: PyTorchFileReader""",
    "use sluice.autograd.functional": """
torch.autograd.forward_ad: dual_level make_dual unpack_dual""",
}


def _read() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for instead, lines in _TABLE.items():
        for line in lines.strip().splitlines():
            place, _, names = line.partition(": ")
            found.setdefault(place, {}).update({name: refusing(f"{place}.{name}", instead) for name in names.split()})
    return found


REFUSED = _read()


def refused_module(name: str, **members: Any) -> ModuleType:
    """A module of its refusing names and these members."""
    return module(name, **{**REFUSED.get(name, {}), **members})
