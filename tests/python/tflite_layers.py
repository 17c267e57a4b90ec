#!/usr/bin/env python3
"""Layers of 8-bit integers as TFLite has them, and what its reference kernels give for them.

tflite_layers.txt has the checksum of each layer's result in TFLite's interpreter (OpResolverType.BUILTIN_REF). Where the package
ai_edge_litert is installed, this program computes them anew, and --write writes them:

    python tests/python/tflite_layers.py [--write]
"""

import math
import pathlib
import sys
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

import sluice as sl
from sluice import _C
from sluice.tiny._scales import fixed_point

RESULTS = pathlib.Path(__file__).with_suffix(".txt")
COUNT = 200


class Draws:
    """Numbers that are the same everywhere: Numerical Recipes' generator of 64 bits, of which the upper 31 are taken."""

    def __init__(self, seed):
        self.state = seed

    def integers(self, low, high, shape=()):
        """In low to high, both included."""
        found = np.empty(math.prod(shape), np.int64)
        for i in range(found.size):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
            found[i] = low + (self.state >> 33) % (high - low + 1)
        return found.reshape(shape) if shape else int(found[0])

    def real(self, low, high):
        return np.float32(low + (high - low) * self.integers(0, 2 ** 20) / 2 ** 20)


@dataclass
class Layer:
    """x: (n, h, w, channels), or (n, columns) of a linear layer. weight: (out, h, w, in), (1, h, w, out) of a depthwise convolution,
    or (out, in). Scales are float32; zeros are those of x and y, int8."""

    kind: str
    x: Any
    weight: Any
    bias: Any
    x_scale: Any
    x_zero: int
    scales: Any
    y_scale: Any
    y_zero: int
    stride: int = 1
    same: bool = False
    activation: str = "NONE"

    @property
    def padding(self):
        """Rows and columns before the first and behind the last ones."""
        around = []
        for size, taps in zip(self.x.shape[1:3], self.weight.shape[1:3]):
            whole = max((-(-size // self.stride) - 1) * self.stride + taps - size, 0) if self.same else 0
            around.append((whole // 2, whole - whole // 2))
        return around

    @property
    def shape(self):
        if self.kind == "linear":
            return self.x.shape[0], self.weight.shape[0]
        sizes = [(size + sum(around) - taps) // self.stride + 1
                 for size, taps, around in zip(self.x.shape[1:3], self.weight.shape[1:3], self.padding)]
        return self.x.shape[0], *sizes, len(self.bias)

    @property
    def range(self):
        """What the activation leaves."""
        low = -128 if self.activation == "NONE" else max(-128, self.y_zero)
        six = self.y_zero + math.floor(float(np.float32(6) / self.y_scale) + 0.5)
        return low, min(127, six) if self.activation == "RELU6" else 127


def layer(index):
    draw, kind = Draws(index), ("conv", "depthwise", "linear")[index % 3]
    channels, outputs = draw.integers(1, 6), draw.integers(1, 8)
    taps = [draw.integers(1, 4), draw.integers(1, 4)]
    if kind == "linear":
        channels *= 11
        x, weight = (draw.integers(1, 3), channels), (outputs, channels)
    else:
        x = (draw.integers(1, 2), draw.integers(4, 7), draw.integers(4, 7), channels)
        outputs = channels * draw.integers(1, 2) if kind == "depthwise" else outputs
        weight = (1, *taps, outputs) if kind == "depthwise" else (outputs, *taps, channels)
    terms = math.prod(weight) // outputs
    each = 1 if kind == "linear" and index % 2 else outputs
    scales = np.array([draw.real(0.005, 0.02) for _ in range(each)], np.float32)
    x_scale = draw.real(0.01, 0.2)
    y_scale = np.float32(float(x_scale) * 0.01 * 73 * 73 * math.sqrt(terms) / draw.real(20, 100))
    if index % 10 == 9:
        y_scale = np.float32(y_scale / 40000)  # sums are multiplied by more than 1
    return Layer(kind, draw.integers(-128, 127, x).astype(np.int8), draw.integers(-127, 127, weight).astype(np.int8),
                 draw.integers(-20000, 20000, (outputs,)).astype(np.int32), x_scale, draw.integers(-128, 127), scales, y_scale,
                 draw.integers(-128, 127), draw.integers(1, 2), bool(draw.integers(0, 1)),
                 ("NONE", "RELU", "RELU6")[draw.integers(0, 2)])


def factors(one):
    """The multiplier and exponent of each output channel, as TFLite computes them from scales of float32."""
    product = one.x_scale * one.scales if len(one.scales) == 1 and one.kind == "linear" else float(one.x_scale) * one.scales.astype(float)
    pairs = [fixed_point(float(p) / float(one.y_scale)) for p in product]
    return pairs * (len(one.bias) // len(pairs))


def operands(one):
    """For the op: channels first, and without an axis for pictures that are padded more behind than before."""
    x, w = one.x, one.weight
    pairs = np.array(factors(one), np.int32).T
    keywords = {"x_zero": one.x_zero, "y_zero": one.y_zero, "low": one.range[0], "high": one.range[1], "dtype": sl.int8}
    if one.kind != "linear":
        x = np.pad(x, ((0, 0), *one.padding, (0, 0)), constant_values=one.x_zero).transpose(0, 3, 1, 2)
        w = w.transpose(3, 0, 1, 2) if one.kind == "depthwise" else w.transpose(0, 3, 1, 2)
        groups = x.shape[1] if one.kind == "depthwise" else 1
        keywords |= {"stride": [one.stride] * 2, "padding": [0, 0], "dilation": [1, 1], "groups": groups}
    arrays = [np.ascontiguousarray(a) for a in (x, w, pairs[0], pairs[1], one.bias)]
    return [sl.tensor(a) for a in arrays], keywords


def computed(one, given, keywords):
    if one.kind == "linear":
        return _C.ops.int8_linear_fixed(*given, **keywords)
    return _C.ops.int8_conv_fixed(*given, **keywords).permute(0, 2, 3, 1)


def checksum(result):
    return f"{zlib.crc32(np.ascontiguousarray(result).tobytes()):08x}"


def tensor_of(s, name, shape, dtype, buffer, scales, zero, axis=0):
    made = s.TensorT()
    made.name, made.shape, made.type, made.buffer = name, list(shape), dtype, buffer
    made.quantization = s.QuantizationParametersT()
    made.quantization.scale = [float(v) for v in np.atleast_1d(scales)]
    made.quantization.zeroPoint = [zero] * len(made.quantization.scale)
    made.quantization.quantizedDimension = axis
    return made


def options_of(s, one):
    """The name of TFLite's operator, the version that takes a scale for each channel, and its options."""
    options, code, version = {
        "conv": (s.Conv2DOptionsT, "CONV_2D", 3), "depthwise": (s.DepthwiseConv2DOptionsT, "DEPTHWISE_CONV_2D", 3),
        "linear": (s.FullyConnectedOptionsT, "FULLY_CONNECTED", 4)}[one.kind]
    how = options()
    how.fusedActivationFunction = getattr(s.ActivationFunctionType, one.activation)
    if one.kind != "linear":
        how.strideW = how.strideH = one.stride
        how.dilationWFactor = how.dilationHFactor = 1
        how.padding = s.Padding.SAME if one.same else s.Padding.VALID
    if one.kind == "depthwise":
        how.depthMultiplier = one.weight.shape[3] // one.x.shape[3]
    return code, version, how


def file_of(layers, s):
    """The bytes of a .tflite file in which each layer reads the result of the one before it. s: the package's module of the schema."""
    import flatbuffers

    graph, model = s.SubGraphT(), s.ModelT()
    first = layers[0]
    graph.tensors = [tensor_of(s, "x", first.x.shape, s.TensorType.INT8, 0, first.x_scale, first.x_zero)]
    graph.operators, model.operatorCodes, model.buffers = [], [], [s.BufferT()]
    for one in layers:
        code, version, how = options_of(s, one)
        op_code, op = s.OperatorCodeT(), s.OperatorT()
        op_code.builtinCode = op_code.deprecatedBuiltinCode = getattr(s.BuiltinOperator, code)
        op_code.version = version
        at, buffer = len(graph.tensors) - 1, len(model.buffers)
        op.opcodeIndex, op.inputs, op.outputs, op.builtinOptions = len(model.operatorCodes), [at, at + 1, at + 2], [at + 3], how
        op.builtinOptionsType = getattr(s.BuiltinOptions, type(how).__name__.removesuffix("T"))
        graph.tensors += [
            tensor_of(s, "w", one.weight.shape, s.TensorType.INT8, buffer, one.scales, 0, 3 if one.kind == "depthwise" else 0),
            tensor_of(s, "b", one.bias.shape, s.TensorType.INT32, buffer + 1, one.x_scale * one.scales, 0),
            tensor_of(s, "y", one.shape, s.TensorType.INT8, 0, one.y_scale, one.y_zero)]
        for values in (one.weight, one.bias):
            model.buffers.append(s.BufferT())
            model.buffers[-1].data = np.frombuffer(values.tobytes(), np.uint8)
        model.operatorCodes.append(op_code)
        graph.operators.append(op)
    graph.inputs, graph.outputs = [0], [len(graph.tensors) - 1]
    model.version, model.subgraphs = 3, [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def tflite(one):
    """The result of TFLite's interpreter."""
    from ai_edge_litert import schema_py_generated
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(model_content=file_of([one], schema_py_generated),
                              experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], one.x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def recorded():
    return [line.split()[2] for line in RESULTS.read_text().splitlines()]


def main():
    found = [checksum(tflite(layer(index))) for index in range(COUNT)]
    if "--write" in sys.argv[1:]:
        RESULTS.write_text("".join(f"{index} {layer(index).kind} {sum_}\n" for index, sum_ in enumerate(found)))
    same = sum(ours == theirs for ours, theirs in zip(found, recorded()))
    print(f"{same} of {COUNT} layers are as recorded")
    return 0 if same == COUNT else 1


if __name__ == "__main__":
    sys.exit(main())
