"""What torch has for programs that trace or compile Python: marks that mean nothing here, and names that refuse."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, List

from sluice import compiler
from sluice._C import fn
from sluice._base.device import device
from sluice._tensor.methods import parse_to
from sluice._tensor.subclasses import DisableTorchFunctionSubclass, plain
from sluice.fx import _symbolic_trace, graph_module
from sluice.mock_torch._private.made import Nothing, marks, module, same
from sluice.mock_torch._private.pytree import PYTREE
from sluice.mock_torch._private.refused import REFUSED, refused_module


class _Annotation:
    """torch.jit's type of a list that a single value may stand for: BroadcastingList2[int] is List[int]."""

    def __class_getitem__(cls, item: Any) -> Any:
        return List[item]


class _Keys:
    """Dispatch keys of torch, which nothing here has."""

    def __init__(self, *keys: Any) -> None:
        self.keys = keys

    def __or__(self, other: Any) -> _Keys:
        return self

    def __getattr__(self, name: str) -> Any:
        return self


class _DynamoConfig(SimpleNamespace):
    """Settings of torch's tracer: kept, and without effect. `sluice.compile` has its own (docs/compile.md)."""

    def patch(self, *args: Any, **settings: Any) -> Any:
        return Nothing()


def _parse_to(*args: Any, **kwargs: Any) -> Any:
    """The device, dtype, non_blocking and memory format that arguments of to() say."""
    place, dtype = parse_to(args, dict(kwargs))
    return None if place is None else device(place), dtype, bool(kwargs.get("non_blocking", False)), kwargs.get("memory_format")


def _associative_scan(combine_fn: Any, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise") -> Any:
    """What combine_fn makes of all elements up to each; torch's op of that name. Each round combines twice as many."""
    leaves, spec = PYTREE.tree_flatten(xs)
    size = leaves[0].shape[dim]

    def halves(start: int, count: int) -> Any:
        return PYTREE.tree_unflatten([t.narrow(dim, start, count) for t in leaves], spec)

    leaves = [t.flip(dim) for t in leaves] if reverse else leaves
    step = 1
    while step < size:
        combined, _ = PYTREE.tree_flatten(combine_fn(halves(0, size - step), halves(step, size - step)))
        leaves = [fn.concat([t.narrow(dim, 0, step), c], dim) for t, c in zip(leaves, combined)]
        step *= 2
    return PYTREE.tree_unflatten([t.flip(dim) for t in leaves] if reverse else leaves, spec)


_DISTINCT = {"torch.fx", "torch.export", "torch._inductor", "torch.onnx", "torch.ao", "torch.futures", "torch.nested", "torch.masked",
             "torch.sparse", "torch.utils", "torch.overrides", "torch.autograd", "torch._subclasses"}
MODULES: dict[str, Any] = {name: refused_module(name) for name in REFUSED
                           if name != "torch" and (name in _DISTINCT or any(name.startswith(f"{root}.") for root in _DISTINCT))}
MODULES.update({
    "torch.fx._symbolic_trace": _symbolic_trace,
    "torch.fx.experimental": module("torch.fx.experimental"),
    "torch.fx.passes.infra": module("torch.fx.passes.infra"),
    "torch.fx._compatibility": module("torch.fx._compatibility", compatibility=marks),
    "torch._subclasses": module("torch._subclasses"),
    "torch._subclasses.fake_tensor": refused_module("torch._subclasses.fake_tensor", is_fake=lambda t: False),
    "torch.ao": module("torch.ao"),
    "torch.ao.nn": module("torch.ao.nn"),
    "torch.onnx": refused_module("torch.onnx", register_custom_op_symbolic=lambda name, symbolic, opset: None,
                                 is_in_onnx_export=lambda: False),
    "torch.onnx.operators": module("torch.onnx.operators"),
    "torch.onnx.symbolic_helper": module("torch.onnx.symbolic_helper", parse_args=marks),
    "torch.onnx.symbolic_opset11": module("torch.onnx.symbolic_opset11"),
    "torch._dynamo": refused_module("torch._dynamo", config=_DynamoConfig(cache_size_limit=8, suppress_errors=False, verbose=False),
                                    assume_constant_result=same, mark_static_address=lambda t, **options: None,
                                    **{name: getattr(compiler, name) for name in ("is_compiling", "disable", "allow_in_graph", "reset")}),
    "torch._dynamo.eval_frame": refused_module("torch._dynamo.eval_frame"),
    "torch._dynamo._trace_wrapped_higher_order_op": module("torch._dynamo._trace_wrapped_higher_order_op",
                                                           TransformGetItemToIndex=Nothing),
    "torch._dynamo.utils": module("torch._dynamo.utils", is_compile_supported=lambda device: False),
    "torch._C": module("torch._C", **REFUSED["torch._C"], DisableTorchFunctionSubclass=DisableTorchFunctionSubclass, _ExcludeDispatchKeyGuard=Nothing,
                       DispatchKey=_Keys(), DispatchKeySet=_Keys, _log_api_usage_once=lambda name: None, _get_tracing_state=lambda: None,
                       _are_functorch_transforms_active=lambda: False, _disabled_torch_function_impl=plain),
    "torch._jit_internal": module("torch._jit_internal", _copy_to_script_wrapper=same, _overload=same,
                                  _overload_method=same),
    "torch._C._nn": module("torch._C._nn", _parse_to=_parse_to),
    "torch._C._functorch": module("torch._C._functorch", is_legacy_batchedtensor=lambda t: False, is_batchedtensor=lambda t: False,
                                  is_gradtrackingtensor=lambda t: False),
    "torch._higher_order_ops": module("torch._higher_order_ops", associative_scan=_associative_scan),
    "torch._higher_order_ops.associative_scan": module("torch._higher_order_ops.associative_scan", associative_scan=_associative_scan),
    "torch._custom_ops": module("torch._custom_ops"),
    "torch.jit.annotations": module("torch.jit.annotations", **{f"BroadcastingList{n}": _Annotation for n in range(1, 7)}, List=List),
    "torch.jit.mobile": refused_module("torch.jit.mobile"),
    "torch.utils._python_dispatch": refused_module("torch.utils._python_dispatch", is_traceable_wrapper_subclass=lambda t: False),
    "torch.nn.quantized": refused_module("torch.nn.quantized"),
    "torch.cuda.graphs": module("torch.cuda.graphs"),
})
_overloads: Callable[..., Any] = same
MEMBERS = {"torch.jit": {**REFUSED["torch.jit"], "_script_if_tracing": same, "_overload_method": same, "_overload": _overloads,
                         "TracerWarning": type("TracerWarning", (Warning,), {"__module__": "torch.jit"})},
           "torch.autograd.profiler": REFUSED["torch.autograd.profiler"],
           "torch.fx.graph_module": {name: getattr(graph_module, name)
                                     for name in ("_CodeOnlyModule", "_USER_PRESERVED_ATTRIBUTES_KEY", "_assign_attr", "_copy_attr")},
           "torch.autograd": {"_disable_profiler": lambda: None, "_profiler_enabled": lambda: False}}
