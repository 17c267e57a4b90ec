"""A network of 8-bit integers in fixed point: its answer as a C program, and by TFLite-Micro's interpreter, whose bits it has."""
from __future__ import annotations

import importlib.util
import pathlib
import sys
import tempfile
import time
from typing import Any

import numpy as np

import sluice as sl
import speed

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests/python"))
import tflite_layers  # noqa: E402

SIDE, CHANNELS, CLASSES = 33, (1, 8, 16, 32), 10  # odd sizes are padded alike before and behind


def available() -> bool:
    return importlib.util.find_spec("tflite_micro") is not None


def layers() -> list[Any]:
    """Three convolutions of stride 2 and a linear layer, as the network of digits has them, with numbers drawn at random."""
    draw, made, side = tflite_layers.Draws(0), [], SIDE
    x = draw.integers(-128, 127, (1, side, side, 1)).astype(np.int8)
    for inputs, outputs in (*zip(CHANNELS, CHANNELS[1:]), (0, CLASSES)):
        linear = inputs == 0
        weight = (outputs, x.size) if linear else (outputs, 3, 3, inputs)
        terms = weight[1] if linear else 9 * inputs
        scale = np.float32(0.1 * 0.01 * 73 * terms ** 0.5)
        made.append(tflite_layers.Layer(
            "linear" if linear else "conv", x.reshape(1, -1) if linear else x, draw.integers(-127, 127, weight).astype(np.int8),
            draw.integers(-2000, 2000, (outputs,)).astype(np.int32), made[-1].y_scale if made else np.float32(0.1),
            made[-1].y_zero if made else 0, np.full(outputs, 0.01, np.float32), scale, -128 if not linear else 0, 2, not linear,
            "NONE" if linear else "RELU"))
        if not linear:
            side = (side + 1) // 2
            x = np.zeros((1, side, side, outputs), np.int8)
    return made


class Answer(sl.nn.Graph):
    def __init__(self, made: list[Any]) -> None:
        super().__init__()
        self.made = [(one, *tflite_layers.operands(one)) for one in made]

    def build(self, x: Any) -> Any:
        for one, given, keywords in self.made:
            if one.kind == "linear":
                x = x.flatten(1)
            else:
                rows, columns = one.padding
                x = sl.nn.functional.pad(x, (*columns, *rows), value=one.x_zero)
            x = tflite_layers.computed(one, [x, *given[1:]], keywords)
            if one.kind != "linear":
                x = x.permute(0, 3, 1, 2)
        return x


def channels_first(made: list[Any]) -> list[Any]:
    """The linear layer's weights in the order of our convolutions' results."""
    last = tflite_layers.Layer(**vars(made[-1]))
    side = int((last.weight.shape[1] // CHANNELS[-1]) ** 0.5)
    last.weight = np.ascontiguousarray(last.weight.reshape(CLASSES, side, side, -1).transpose(0, 3, 1, 2).reshape(CLASSES, -1))
    return [*made[:-1], last]


def interpreter(made: list[Any]) -> Any:
    """TFLite-Micro's, for this network."""
    from tflite_micro.python.tflite_micro import runtime
    from tflite_micro.tensorflow.lite.micro.python import schema_py_generated

    return runtime.Interpreter.from_bytes(tflite_layers.file_of(made, schema_py_generated), arena_size=1 << 20)


def rounds(times: int, count: int = 300) -> list[tuple[float, float]]:
    """Nanoseconds of an answer as C, and by the interpreter, in turn. Their results are compared first."""
    made = layers()
    graph, theirs = Answer(channels_first(made)), interpreter(made)
    picture = made[0].x
    x = sl.tensor(np.ascontiguousarray(picture.transpose(0, 3, 1, 2)))
    theirs.set_input(picture, 0)
    theirs.invoke()
    if (graph(x).numpy() != theirs.get_output(0)).any():
        raise RuntimeError(f"tiny.answer: {graph(x).numpy()} is not what TFLite-Micro gives: {theirs.get_output(0)}")

    def interpreted() -> float:
        begin = time.perf_counter_ns()
        for _ in range(count):
            theirs.invoke()
        return (time.perf_counter_ns() - begin) / count

    with tempfile.TemporaryDirectory() as folder:
        sl.tiny.export(graph, folder, name="net", samples=[(x,)])
        program = speed.build(folder, "net")
        return [(speed.of_c(program, count)[0], interpreted()) for _ in range(times)]
