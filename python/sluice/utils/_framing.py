"""TensorFlow's framing of records: a length (8 bytes), a masked CRC-32C of that, the bytes, and a masked CRC-32C of them."""

import struct

from sluice._C import fn


def masked(data: bytes) -> int:
    """The check sum that stands in files."""
    crc = fn.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))
