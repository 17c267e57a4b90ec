"""ShapeProp: runs a graph once, and notes shapes and dtypes of its values."""

from __future__ import annotations

from typing import Any, NamedTuple

from sluice._C import Tensor
from sluice.fx.interpreter import Interpreter
from sluice.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """Facts of a tensor, in node.meta["tensor_meta"]."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _facts(t: Tensor) -> TensorMetadata:
    return TensorMetadata(t.shape, t.dtype, t.requires_grad, tuple(t.stride()), "contiguous_format" if t.is_contiguous() else None, False, {})


class ShapeProp(Interpreter):
    """propagate(*inputs) runs the module, and every node's meta has "tensor_meta" (a TensorMetadata, or a nest of them) and "type"."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        seen = []

        def note(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            seen.append(value)
            return _facts(value)

        facts = map_aggregate(result, note)
        if seen:
            n.meta["tensor_meta"] = facts
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """The module's result."""
        return self.run(*args)
