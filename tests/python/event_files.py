"""TensorBoard's event files, read without its code: check sums by their definition, and messages as fields by number."""

import pathlib
import struct

CRC = []  # Castagnoli's polynomial, bit by bit
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC.append(byte)


def check_sum(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The records of a file, whose check sums must be right."""
    data, at, found = pathlib.Path(path).read_bytes(), 0, []
    while at < len(data):
        length, = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == check_sum(data[at:at + 8]), f"{path}: the check sum of the length at byte {at}"
        body = data[at + 12:at + 12 + length]
        assert len(body) == length and struct.unpack_from("<I", data, at + 12 + length)[0] == check_sum(body), f"{path}: the check sum of the record at byte {at}"
        found.append(body)
        at += 16 + length
    return found


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """A message: by number, the values in their order; of texts and messages, bytes."""
    at, found = 0, {}
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            length, at = varint(data, at)
            assert at + length <= len(data), "a part is longer than its message"
            value, at = data[at:at + length], at + length
        else:
            assert kind in (1, 5), f"wire type {kind}"
            value, = struct.unpack_from("<d" if kind == 1 else "<f", data, at)
            at += 8 if kind == 1 else 4
        found.setdefault(key >> 3, []).append(value)
    return found


def doubles(data):
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def files(folder):
    return sorted(pathlib.Path(folder).glob("events.out.tfevents.*"))


def events(folder):
    """The events of the one file in a folder; the first must say the version."""
    path, = files(folder)
    found = [fields(record) for record in records(path)]
    assert found[0][3] == [b"brain.Event:2"] and all(1 in e for e in found)
    return found[1:]


def values(folder):
    """(tag, step, fields of the value) of each summary."""
    found = []
    for event in events(folder):
        for summary in event.get(5, []):
            for value in map(fields, fields(summary).get(1, [])):
                found.append((value[1][0].decode(), event.get(2, [0])[0], value))
    return found


def scalars(folder):
    """(tag, step, number) of each scalar."""
    return [(tag, step, value[2][0]) for tag, step, value in values(folder) if 2 in value]
