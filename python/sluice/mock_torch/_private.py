"""Parts of torch that packages are known to import and Sluice does not have, as far as these use them: torchvision, einops,
and others.

Names that are only there to be imported refuse to be used.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, Callable, List

from sluice import _C, compiler, library
from sluice._base import device as _device
from sluice._base.size import Size
from sluice.nn import init
from sluice.serialization import load


def _module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name, "What packages use of torch's private module of this name.")
    vars(made).update(members)
    return made


class _Nodes:
    """Containers by type: how they are taken apart and put together."""

    def __init__(self) -> None:
        self.known: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {
            dict: (lambda d: (list(d.values()), list(d)), lambda values, keys: dict(zip(keys, values))),
            list: (lambda items: (list(items), None), lambda values, _: list(values)),
            tuple: (lambda items: (list(items), None), lambda values, _: tuple(values))}

    def register(self, cls: type, flatten_fn: Any, unflatten_fn: Any, **kwargs: Any) -> None:
        self.known[cls] = flatten_fn, unflatten_fn

    def map(self, function: Any, tree: Any, *rests: Any) -> Any:
        """The tree with function(leaf, ...) for each leaf."""
        if type(tree) not in self.known:
            return function(tree, *rests)
        flatten, unflatten = self.known[type(tree)]
        values, context = flatten(tree)
        others = [flatten(rest)[0] for rest in rests]
        return unflatten([self.map(function, *items) for items in zip(values, *others)], context)

    def leaves(self, tree: Any) -> list[Any]:
        found: list[Any] = []
        self.map(found.append, tree)
        return found

    def flatten(self, tree: Any) -> tuple[list[Any], _Spec]:
        return self.leaves(tree), _Spec(self.map(lambda leaf: None, tree))

    def unflatten(self, leaves: Any, spec: _Spec) -> Any:
        items = iter(leaves)
        return self.map(lambda _: next(items), spec.tree)


class _Spec:
    """A tree without its leaves."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Spec) and self.tree == other.tree


_nodes = _Nodes()
_flatten_dict, _unflatten_dict = _nodes.known[dict]


def _same(thing: Any) -> Any:
    """A mark for tools that Sluice has not."""
    return thing


def _marks(*args: Any, **kwargs: Any) -> Any:
    """A decorator with arguments that is such a mark."""
    return _same


def _refusing(name: str) -> type:
    """A class that can be named and derived from, and has no objects."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{name}: used, but Sluice has nothing of the kind (sluice.mock_torch); give a "
                                  "replacement in extra_dict")

    return type(name.rpartition(".")[2], (), {"__init__": __init__, "__module__": name.rpartition(".")[0], "__doc__": f"{name} is not here."})


def _home() -> str:
    """The folder in which torch keeps what it loads."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def _load_url(url: str, model_dir: Any = None, map_location: Any = None, progress: bool = True, check_hash: bool = False,
              file_name: Any = None, weights_only: bool = True) -> Any:
    """The state of a file that is there already: nothing is fetched."""
    path = os.path.join(model_dir or os.path.join(_home(), "hub", "checkpoints"), file_name or os.path.basename(url.partition("?")[0]))
    if not os.path.exists(path):
        raise FileNotFoundError(f"hub: {path} is not there, and Sluice downloads nothing: fetch {url} to it")
    return load(path, weights_only=weights_only)


def _assert(condition: Any, message: str) -> None:
    assert condition, message


def _check(condition: Any, message: Any = None) -> None:
    if not condition:
        raise RuntimeError("Expected cond to be True, but got False." if message is None else message())


class _Ops:
    """torch.ops: libraries of ops that are built for torch cannot be loaded; ops of Sluice's are there."""

    @staticmethod
    def load_library(path: str) -> None:
        raise OSError(f"torch.ops.load_library: {path} is built for torch; Sluice takes none of its ops (see docs/embedding.md "
                      "for Sluice's own)")

    def __getattr__(self, name: str) -> Any:
        return getattr(_C.ops, name)


def _tqdm(*args: Any, **kwargs: Any) -> Any:
    import tqdm

    return tqdm.tqdm(*args, **kwargs)


def _register_fake(op: Any, func: Any = None, **options: Any) -> Any:
    """Leaves a mark for an op that is not here, as torch does for a library that could not be loaded."""
    try:
        return library.register_fake(op, func, **options)
    except (AttributeError, RuntimeError, ValueError):
        return _same if func is None else func


def _ntuple(n: int) -> Any:
    """A number n times; what is iterable already, as a tuple."""
    return lambda value: tuple(value) if hasattr(value, "__iter__") else (value,) * n


class _Keys:
    """Dispatch keys of torch, which nothing here has."""

    def __init__(self, *keys: Any) -> None:
        self.keys = keys

    def __or__(self, other: Any) -> _Keys:
        return self

    def __getattr__(self, name: str) -> Any:
        return self


class _Placement:
    """How a tensor would lie over a mesh of devices: only a description, for plans that are never carried out here."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.args == other.args

    def __hash__(self) -> int:
        return hash((type(self), self.args))


def _placement(name: str) -> type:
    return type(name, (_Placement,), {"__doc__": f"torch.distributed.tensor.{name}, as a description."})


class _Nothing:
    """A scope that changes nothing."""

    def __init__(self, *args: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass



# Modules that Sluice has not, or by another name.
PRIVATE: dict[str, Any] = {
    "torch.utils._pytree": _module(
        "torch.utils._pytree", register_pytree_node=_nodes.register, _register_pytree_node=_nodes.register, tree_map=_nodes.map,
        tree_leaves=_nodes.leaves, tree_flatten=_nodes.flatten, tree_unflatten=_nodes.unflatten, TreeSpec=_Spec,
        _dict_flatten=_flatten_dict, _dict_unflatten=_unflatten_dict, Context=object),
    "torch._C": _module("torch._C", DisableTorchFunctionSubclass=_Nothing, _ExcludeDispatchKeyGuard=_Nothing,
                        DispatchKey=_Keys(), DispatchKeySet=_Keys, _log_api_usage_once=lambda name: None,
                        _get_tracing_state=lambda: None),
    "torch._custom_ops": _module("torch._custom_ops"),
    "torch._dynamo": _module("torch._dynamo", is_compiling=compiler.is_compiling, disable=compiler.disable,
                             allow_in_graph=_same),
    "torch._dynamo._trace_wrapped_higher_order_op": _module("torch._dynamo._trace_wrapped_higher_order_op",
                                                            TransformGetItemToIndex=_Nothing),
    "torch._dynamo.utils": _module("torch._dynamo.utils", is_compile_supported=lambda device: False),
    "torch.ao": _module("torch.ao"),
    "torch.ao.quantization": _module("torch.ao.quantization", QuantStub=_refusing("torch.ao.quantization.QuantStub"),
                                     DeQuantStub=_refusing("torch.ao.quantization.DeQuantStub")),
    "torch.distributed.fsdp": _module(
        "torch.distributed.fsdp", FullyShardedDataParallel=_refusing("torch.distributed.fsdp.FullyShardedDataParallel")),
    "torch.distributed.tensor": _module(
        "torch.distributed.tensor", Placement=_Placement, **{n: _placement(n) for n in ("Replicate", "Shard", "Partial")},
        **{n: _refusing(f"torch.distributed.tensor.{n}") for n in ("DTensor", "distribute_tensor")}),
    "torch.distributed.tensor.parallel": _module(
        "torch.distributed.tensor.parallel", **{n: _refusing(f"torch.distributed.tensor.parallel.{n}")
                                                for n in ("ColwiseParallel", "RowwiseParallel", "parallelize_module")}),
    "torch.fx": _module("torch.fx", wrap=_same,
                        **{n: _refusing(f"torch.fx.{n}") for n in ("Graph", "GraphModule", "Node", "Proxy", "Tracer")}),
    "torch.fx.graph_module": _module("torch.fx.graph_module", _CodeOnlyModule=_refusing("torch.fx.graph_module._CodeOnlyModule"),
                                     _copy_attr=_refusing("torch.fx.graph_module._copy_attr"),
                                     _USER_PRESERVED_ATTRIBUTES_KEY="_user_preserved_attributes"),
    "torch.hub": _module("torch.hub"),
    "torch.jit.annotations": _module("torch.jit.annotations", **{f"BroadcastingList{n}": List for n in range(1, 7)}),
    "torch.library": _module("torch.library", Library=_refusing("torch.library.Library")),
    "torch.nn.attention.flex_attention": _module(
        "torch.nn.attention.flex_attention", _DEFAULT_SPARSE_BLOCK_SIZE=128,
        **{n: _refusing(f"torch.nn.attention.flex_attention.{n}") for n in ("BlockMask", "create_block_mask", "flex_attention")}),
    "torch.nn.modules.batchnorm": "sluice.nn.modules.norm",
    "torch.nn.modules.instancenorm": "sluice.nn.modules.norm",
    "torch.nn.modules.normalization": "sluice.nn.modules.norm",
    "torch.nn.modules.utils": _module("torch.nn.modules.utils", _ntuple=_ntuple, _single=_ntuple(1), _pair=_ntuple(2), _triple=_ntuple(3),
                                      _quadruple=_ntuple(4)),
    "torch.onnx": _module("torch.onnx", register_custom_op_symbolic=lambda name, symbolic, opset: None),
    "torch.onnx.symbolic_helper": _module("torch.onnx.symbolic_helper", parse_args=_marks),
    "torch.onnx.symbolic_opset11": _module("torch.onnx.symbolic_opset11"),
    "torch.types": _module("torch.types", _device=_device.device, _dtype=_C.dtype, _size=Size, Device=_device.device,
                           Number=(int, float, bool)),
    "torch.utils.model_zoo": _module("torch.utils.model_zoo", load_url=_load_url, tqdm=_tqdm),
}

# Names of modules that Sluice has.
MEMBERS: dict[str, dict[str, Any]] = {
    "torch": {"_assert": _assert, "_check": _check, "ops": _Ops()},
    "torch.hub": {"_get_torch_home": _home, "load_state_dict_from_url": _load_url},
    "torch.library": {"register_fake": _register_fake},
    "torch.nn.init": {name: getattr(init, name) for name in ("_calculate_correct_fan", "_calculate_fan_in_and_fan_out")},
    "torch.jit": {"_script_if_tracing": _same, "_overload_method": _same},
}
