"""What the tests of models of ONNX share: small models, made with onnx's helpers."""

import pytest
from onnx_nodes import BESIDE  # puts onnx on the path

import sluice as sl

INSTALLED = BESIDE.is_dir() and hasattr(sl._C, "OnnxModel")
needs_onnx = pytest.mark.skipif(not INSTALLED, reason="onnx is not installed, or this build reads no models of ONNX")


def model_of(nodes, inputs, outputs, initializers=(), opset=18, functions=(), **options):
    """A ModelProto. inputs and outputs: name -> shape, of float32; or (dtype, shape)."""
    from onnx import TensorProto, helper, numpy_helper

    def ports(of):
        made = []
        for name, shape in of.items():
            dtype, shape = shape if isinstance(shape, tuple) and shape and isinstance(shape[0], str) else ("FLOAT", shape)
            made.append(helper.make_tensor_value_info(name, getattr(TensorProto, dtype), shape))
        return made

    tensors = [numpy_helper.from_array(array, name) for name, array in dict(initializers).items()]
    graph = helper.make_graph(nodes, "small", ports(inputs), ports(outputs), tensors)
    imports = options.pop("imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10, **options)


def graph_of(module):
    """The module as an nn.Graph."""
    class Graph(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module

        def build(self, *inputs):
            return self.module(*inputs)

    return Graph()
