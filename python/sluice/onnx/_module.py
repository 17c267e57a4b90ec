"""A model of ONNX as a module. What its nodes do is C++ (onnx/)."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from sluice import _C, nn
from sluice._tensor.creation import as_tensor, default_generator


class Port(NamedTuple):
    """An input or output: its name, what it is ("tensor", "sequence", "optional"), its dtype, and for each axis its size, the name of a
    size that varies, or None. dtype and dims may be None: the file does not say."""

    name: str
    kind: str
    dtype: Any
    dims: tuple[int | str | None, ...] | None


def _port(name: str, kind: str, dtype: Any, dims: list[str] | None) -> Port:
    if dims is None:
        return Port(name, kind, dtype, None)
    return Port(name, kind, dtype, tuple(int(d) if d.isdigit() else d or None for d in dims))


def _model(source: Any) -> Any:
    if not hasattr(_C, "OnnxModel"):
        raise _C.NotImplementedError("onnx: this build of Sluice reads no models of ONNX; build it where protobuf is "
                                     "(libprotobuf-dev, protobuf-compiler), with -DSLUICE_ONNX=ON")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _C.OnnxModel.parse(bytes(source), "")
    if hasattr(source, "SerializeToString"):  # a ModelProto
        return _C.OnnxModel.parse(source.SerializeToString(), "")
    return _C.OnnxModel.load(os.fspath(source))


class OnnxModule(nn.Module):
    """A model of ONNX. Its floating weights are parameters under the file's names; their dots are modules within each other, so that
    state_dict() has the names of the file.

    forward(*inputs, **by_name): as many as the model has, tensors or lists of them (sequences); those left out are absent optional
    inputs. The result is what the model gives, or a tuple where that is several.
    """

    def __init__(self, source: Any):
        super().__init__()
        self._model = _model(source)
        self.inputs = tuple(_port(*p) for p in self._model.inputs)
        self.outputs = tuple(_port(*p) for p in self._model.outputs)
        self._places = [self._place(name, nn.Parameter(tensor, requires_grad=tensor.is_floating_point()))
                        for name, tensor in self._model.parameters]

    def _place(self, name: str, parameter: Any) -> tuple[nn.Module, str]:
        """Registers a parameter in the module that its name says; one whose name cannot be a path of modules has another."""
        *path, last = name.split(".")
        module: nn.Module = self
        for part in path:
            inner = module._modules.get(part)
            if inner is None and (not part or hasattr(module, part)):
                return self._place(name.replace(".", "_"), parameter)
            if inner is None:
                inner = nn.Module()
                module.add_module(part, inner)
            module = inner
        if not last or hasattr(module, last):
            return self._place(f"{name.replace('.', '_') or 'parameter'}_", parameter)
        module.register_parameter(last, parameter)
        return module, last

    @property
    def metadata(self) -> dict[str, str]:
        """What the file says of itself."""
        return self._model.metadata

    @property
    def opsets(self) -> dict[str, int]:
        """Versions of the sets of ops, by domain; "" is ONNX's own."""
        return self._model.opsets

    def _given(self, inputs: tuple[Any, ...], by_name: dict[str, Any]) -> list[Any]:
        names = [port.name for port in self.inputs]
        if len(inputs) > len(names) or not by_name.keys() <= set(names[len(inputs):]):
            raise TypeError(f"onnx: got {len(inputs)} inputs and {sorted(by_name)}; the model has {names}, each once")
        given = [*inputs, *(by_name.get(name) for name in names[len(inputs):])]
        return [None if v is None else [as_tensor(t) for t in v] if isinstance(v, (list, tuple)) else as_tensor(v) for v in given]

    def forward(self, *inputs: Any, **by_name: Any) -> Any:
        parameters = [module._parameters[name] for module, name in self._places]
        outputs = self._model.run(self._given(inputs, by_name), parameters, default_generator)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def extra_repr(self) -> str:
        shown = ", ".join(f"{p.name}: {p.dtype or p.kind}{'' if p.dims is None else list(p.dims)}" for p in self.inputs)
        return f"{shown} -> {', '.join(p.name for p in self.outputs)}"


def load(model: Any) -> OnnxModule:
    """A module of a model: the path of a file, its bytes, or a ModelProto. External data is read from the file's folder.

    Raises ValueError for what is malformed and NotImplementedError for ops, sets of ops and types that Sluice has not, by node.
    """
    return OnnxModule(model)


def check(model: Any) -> None:
    """Raises what load() would."""
    _model(model)


def supported_ops() -> list[str]:
    """The ops of ONNX that Sluice reads."""
    return list(_C.onnx_ops())
