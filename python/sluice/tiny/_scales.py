"""Scales as text: a line for each tensor of a layer, with a number for the tensor, or for each output channel of a weight."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Mapping

import numpy as np

from sluice import _C
from sluice._tensor import creation

_FORMATS = {"uint8": _C.uint8, "int8": _C.int8}
_TENSORS = ("input", "output", "weight")


@dataclass(frozen=True)
class Format:
    """8-bit integers that stand for q * scale: uint8 of what is never negative, else int8."""

    dtype: Any
    scale: float

    @staticmethod
    def of(low: float, high: float) -> Format:
        if low >= 0:
            return Format(_C.uint8, max(high, 1e-8) / 255)
        return Format(_C.int8, max(-low / 128, high / 127, 1e-8))

    def quantize(self, x: Any) -> Any:
        return _C.ops.quantize(x, creation.tensor([self.scale]), None, dtype=self.dtype)


def fixed_point(real: float) -> tuple[int, int]:
    """A positive number as multiplier * 2^(exponent - 31), with a multiplier of 31 bits, as TFLite's QuantizeMultiplier has it."""
    fraction, exponent = math.frexp(real)
    multiplier = math.floor(fraction * 2 ** 31 + 0.5)
    if multiplier == 2 ** 31:
        multiplier, exponent = 2 ** 30, exponent + 1
    return (multiplier, exponent) if exponent >= -31 else (0, 0)


@dataclass(frozen=True)
class LayerScales:
    """output: None where the layer gives floats. weight: a scale for each output channel."""

    input: Format
    output: Format | None
    weight: tuple[float, ...]


def text_of(scales: Mapping[str, LayerScales]) -> str:
    lines = ["# Scales of tensors of 8-bit integers q, which stand for q * scale: LAYER TENSOR DTYPE SCALE...\n"]
    for name, layer in scales.items():
        for tensor, form in (("input", layer.input), ("output", layer.output)):
            lines.append(f"{name} {tensor} {f'{form.dtype.name} {form.scale!r}' if form else 'float32'}\n")
        lines.append(f"{name} weight int8 {' '.join(str(np.float32(scale)) for scale in layer.weight)}\n")
    return "".join(lines)


def _numbers(at: str, words: list[str], count: int, what: str) -> list[float]:
    if len(words) != count:
        raise _C.ValueError(f"{at}: {len(words)} scales; {what} has {count}")
    values = []
    for word in words:
        try:
            values.append(float(word))
        except ValueError:
            values.append(-1.0)
        if not 0 < values[-1] < math.inf:
            raise _C.ValueError(f"{at}: scale {word!r}; must be a number above 0")
    return values


def read(path: Any, channels: Mapping[str, int]) -> dict[str, LayerScales]:
    """The scales of a file for layers with so many output channels. Errors name its line."""
    where = os.fsdecode(path)
    with open(where) as file:
        lines = file.read().splitlines()
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        words, at = line.partition("#")[0].split(), f"{where}:{number}"
        if not words:
            continue
        if len(words) < 3 or words[1] not in _TENSORS:
            raise _C.ValueError(f"{at}: {line.strip()!r}; must be LAYER, one of {', '.join(_TENSORS)}, a dtype, and scales")
        name, tensor, dtype, scales = words[0], words[1], words[2], words[3:]
        if name not in channels:
            raise _C.ValueError(f"{at}: unknown layer '{name}'; the network has {list(channels)}")
        layer = found.setdefault(name, {})
        if tensor in layer:
            raise _C.ValueError(f"{at}: '{name} {tensor}' is there twice; must be once")
        if tensor == "weight":
            if dtype != "int8":
                raise _C.ValueError(f"{at}: a weight of {dtype}; must be of int8")
            layer[tensor] = tuple(_numbers(at, scales, channels[name], f"the weight of '{name}'"))
        elif tensor == "output" and dtype == "float32":
            _numbers(at, scales, 0, "a result of floats")
            layer[tensor] = None
        elif dtype in _FORMATS:
            layer[tensor] = Format(_FORMATS[dtype], _numbers(at, scales, 1, f"'{name} {tensor}'")[0])
        else:
            raise _C.ValueError(f"{at}: dtype {dtype}; must be uint8 or int8" + (", or float32" if tensor == "output" else ""))
    for name in channels:
        for tensor in _TENSORS:
            if tensor not in found.get(name, {}):
                raise _C.ValueError(f"{where}:{len(lines) + 1}: no line '{name} {tensor}'; the network has this tensor")
    return {name: LayerScales(**found[name]) for name in channels}
