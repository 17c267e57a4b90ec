"""Values of users become values of event files: arrays, pictures, sounds, histograms, graphs."""

from __future__ import annotations

import io
import re
import struct
import wave
import zlib
from typing import Any

import numpy as np

from sluice import _C
from sluice._graph.lower import lower
from sluice.utils.tensorboard import _wire as wire


def array_of(data: Any) -> Any:
    """A tensor, or a list of numbers, as an array."""
    if isinstance(data, _C.Tensor):
        data = data.detach().cpu()
        return (data.float() if data.dtype is _C.bfloat16 else data).numpy()
    return np.asarray(data)


def scalar_of(where: str, data: Any) -> float:
    array = array_of(data)
    if array.size != 1:
        raise ValueError(f"SummaryWriter.{where}: a value of shape {array.shape}; must be a number")
    return float(array.reshape(()))


def _limits() -> Any:
    """TensorFlow's: each a tenth further from 0 than the one before it, up to 1e20 both ways."""
    steps = 1e-12 * 1.1 ** np.arange(776)
    steps = steps[steps < 1e20]
    return np.concatenate([-steps[::-1], [0.0], steps])


def histogram_of(where: str, data: Any, bins: Any, max_bins: int | None) -> wire.Histogram:
    values = array_of(data).astype("float64").ravel()
    if not values.size:
        raise ValueError(f"SummaryWriter.{where}: no values; must be at least one")
    if not np.isfinite(values).all():
        raise ValueError(f"SummaryWriter.{where}: {int((~np.isfinite(values)).sum())} of {values.size} values are not finite; must all be")
    counts, edges = np.histogram(values, bins=_limits() if isinstance(bins, str) and bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        step = -(-len(counts) // max_bins)
        counts = np.add.reduceat(counts, range(0, len(counts), step))
        edges = np.append(edges[:-1:step], edges[-1])
    used = np.flatnonzero(counts)
    first, last = (max(0, used[0] - 1), used[-1]) if len(used) else (0, 0)
    return wire.Histogram(values.min(), values.max(), len(values), values.sum(), values @ values, edges[first + 1:last + 2].tolist(),
                          counts[first:last + 1].tolist())


def pixels_of(where: str, data: Any, layout: str) -> Any:
    """uint8 pixels (height, width, channels) of what has these axes. Images of a batch (N) stand beside each other."""
    array, axes = array_of(data), layout.upper()
    if len(axes) != array.ndim or not set("HW") <= set(axes) <= set("NCHW") or len(set(axes)) != len(axes):
        raise ValueError(f"SummaryWriter.{where}: an image of shape {array.shape} with dataformats '{layout}'; must name each axis once, "
                         "H and W among them, of N, C, H, W")
    if array.dtype != np.uint8:
        array = np.clip(array.astype("float64") * 255, 0, 255).astype(np.uint8)
    for axis in "CN":
        if axis not in axes:
            array, axes = array[None], axis + axes
    array = array.transpose([axes.index(axis) for axis in "NHWC"])
    n, height, width, channels = array.shape
    if channels not in (1, 3, 4) or not array.size:
        raise ValueError(f"SummaryWriter.{where}: images of {height} x {width} pixels in {channels} channels; must have 1, 3 or 4, and pixels")
    columns = min(n, 8)
    rows = -(-n // columns)
    grid = np.zeros((rows, height, columns, width, channels), np.uint8)
    for i in range(n):
        grid[i // columns, :, i % columns] = array[i]
    return grid.reshape(rows * height, columns * width, channels)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(pixels: Any) -> bytes:
    height, width, channels = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each without a filter
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def image_of(pixels: Any) -> bytes:
    height, width, channels = pixels.shape
    return wire.image(height, width, channels, png_of(pixels))


def figure_pixels(figure: Any) -> Any:
    """The picture of a figure of matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def audio_of(where: str, data: Any, rate: int) -> bytes:
    sound = array_of(data).astype("float64").squeeze()
    if sound.ndim != 1:
        raise ValueError(f"SummaryWriter.{where}: a sound of shape {sound.shape}; must be of one channel")
    samples = (np.clip(sound, -1, 1) * 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return wire.audio(rate, len(samples), file.getvalue())


_NODE = re.compile(r"""^\s+(?P<results>%\d+(?:,\s%\d+)*)\s=\s(?P<op>\w+)(?:\s"(?P<label>[^"]*)"|\((?P<operands>[^)]*)\))?(?P<rest>.*)$""")


def graph_of(model: Any, inputs: Any) -> bytes:
    """The nodes of what a model computes for such inputs, as the compiler gets it. They stand under their modules."""
    text = lower(model, *(inputs if isinstance(inputs, (tuple, list)) else (inputs,))).text()
    names: dict[str, str] = {}
    nodes = b""
    for line in text.splitlines():
        output = re.match(r'^\s+output "([^"]*)" = (%\d+)', line)
        if output:
            nodes += wire.node("output/" + output[1], "output", [names[output[2]]], {})
            continue
        found = _NODE.match(line)
        if not found:
            continue
        module = re.search(r'\[.*module "([^"]*)"', found["rest"])
        first = found["results"].split(",")[0]
        path = found["label"] if found["label"] is not None else f"{module[1] + '.' if module else ''}{found['op']}_{first[1:]}"
        name = path.replace(".", "/")
        for at, result in enumerate(re.findall(r"%\d+", found["results"])):
            names[result] = name if at == 0 else f"{name}:{at}"
        of = {"type": found["rest"].partition(" : ")[2].split(" [")[0]}
        source = re.search(r'source "([^"]*)"', found["rest"])
        nodes += wire.node(name, found["op"], [names[i] for i in re.findall(r"%\d+", found["operands"] or "")],
                           {**of, **({"source": source[1]} if source else {})})
    return nodes
