"""Models of ONNX.

    model = sl.onnx.load("model.onnx")          # a module: model(x), model.parameters(), model.state_dict()
    model(sl.randn(1, 3, 224, 224))

A model runs eagerly, in an nn.Graph, and is trained like any other module. What follows from shapes and constants alone is
computed while a graph is made, so that reshapes, branches and loops of exporters cost a plan nothing. docs/onnx.md says what is
read; `python -m sluice.onnx model.onnx` tells of a file.
"""

from sluice.onnx._compare import convert_to_onnx_and_check
from sluice.onnx._export import export
from sluice.onnx._module import OnnxModule, Port, check, load, supported_ops

__all__ = ["OnnxModule", "Port", "check", "convert_to_onnx_and_check", "export", "load", "supported_ops"]
