"""Messages of TensorBoard's event files, in the encoding of protocol buffers. Field numbers are those of TensorBoard's own files
event.proto, summary.proto, histogram.proto, tensor.proto, graph.proto and plugins/hparams."""

from __future__ import annotations

import struct
from typing import Any, Iterable, NamedTuple

STRING_TENSOR, FLOAT_TENSOR, DOUBLE_TENSOR = 7, 1, 2  # kinds of elements of a TensorProto
SCALAR_DATA, TENSOR_DATA = 1, 2                       # kinds of data of SummaryMetadata


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative ones are of two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def part(field: int, value: bytes | str) -> bytes:
    """A text, bytes, or another message."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def doubles(field: int, values: Iterable[float]) -> bytes:
    return part(field, b"".join(struct.pack("<d", v) for v in values))


def metadata(plugin: str, content: bytes = b"", data_class: int = 0) -> bytes:
    return part(1, part(1, plugin) + part(2, content)) + (number(4, data_class) if data_class else b"")


def value(tag: str, data: bytes, about: bytes = b"") -> bytes:
    """A value of a Summary, with its SummaryMetadata."""
    return part(1, part(1, tag) + data + (part(9, about) if about else b""))


def text_tensor(texts: list[str]) -> bytes:
    return number(1, STRING_TENSOR) + part(2, part(2, number(1, len(texts)))) + b"".join(part(8, text) for text in texts)


def scalar_tensor(scalar: float, double_precision: bool) -> bytes:
    if double_precision:
        return number(1, DOUBLE_TENSOR) + doubles(6, [scalar])
    return number(1, FLOAT_TENSOR) + part(5, struct.pack("<f", scalar))


class Histogram(NamedTuple):
    """Counts of values up to each limit, from the limit before it on."""

    min: float
    max: float
    num: float
    sum: float
    sum_squares: float
    limits: list[float]
    counts: list[float]

    def encoded(self) -> bytes:
        head = b"".join(double(field, v) for field, v in enumerate(self[:5], 1))
        return head + doubles(6, self.limits) + doubles(7, self.counts)


def image(height: int, width: int, channels: int, png: bytes) -> bytes:
    return number(1, height) + number(2, width) + number(3, channels) + part(4, png)


def audio(rate: int, frames: int, wav: bytes) -> bytes:
    return single(1, rate) + number(2, 1) + number(3, frames) + part(4, wav) + part(5, "audio/wav")


def node(name: str, op: str, inputs: list[str], attributes: dict[str, str]) -> bytes:
    """A node of a GraphDef; its attributes are texts."""
    fields = part(1, name) + part(2, op) + b"".join(part(3, i) for i in inputs)
    return part(1, fields + b"".join(part(5, part(1, key) + part(2, part(2, text))) for key, text in attributes.items()))


def _hparam(setting: Any) -> tuple[bytes, int]:
    """A google.protobuf.Value, and the DataType of the plugin."""
    if isinstance(setting, bool):
        return number(4, setting), 2
    if isinstance(setting, str):
        return part(3, setting), 1
    return double(2, float(setting)), 3


def hparams(settings: dict[str, Any], metrics: Iterable[str], domains: dict[str, list[Any]]) -> tuple[bytes, bytes, bytes]:
    """HParamsPluginData of an experiment, of the start and of the end of its one session."""
    infos, starts = b"", b""
    for name, setting in settings.items():
        encoded, kind = _hparam(setting)
        domain = b"".join(part(1, _hparam(choice)[0]) for choice in domains.get(name, []))
        infos += part(4, part(1, name) + number(4, kind) + (part(5, domain) if domain else b""))
        starts += part(1, part(1, name) + part(2, encoded))
    infos += b"".join(part(5, part(1, part(2, name))) for name in metrics)
    return part(2, infos), part(3, starts), part(4, number(1, 1))


def event(wall_time: float, step: int | None, content: bytes) -> bytes:
    return double(1, wall_time) + (number(2, step) if step else b"") + content


def file_version() -> bytes:
    return part(3, "brain.Event:2")


def graph_event(nodes: bytes) -> bytes:
    return part(4, nodes + part(4, number(1, 22)))  # the version that the nodes are written for


def summary(values: bytes) -> bytes:
    return part(5, values)


def restart() -> bytes:
    """A SessionLog that says that a run begins again: what comes behind its step is of before."""
    return part(7, number(1, 1))
