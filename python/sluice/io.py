"""Images from files: read, decoded, cut, resized and flipped by kernels, on several threads and without the GIL.

    images = sluice.io.decode_jpeg(paths, (224, 224))             # uint8 (N, 3, 224, 224)

In a graph, a source says which files, and the plan does the rest (docs/data.md):

    files = sluice.host_function(names, out=((4096,), sluice.uint8))   # names() yields sluice.io.pack(paths, room=4096)
    images = sluice.io.decode_jpeg(files, (224, 224), count=32)
"""

from __future__ import annotations

import enum
import os
from numbers import Integral
from typing import Any

from sluice._C import Tensor, fn
from sluice._tensor.creation import as_tensor, from_numpy
from sluice._base.device import device

__all__ = ["ImageReadMode", "decode_jpeg", "pack", "read_file", "read_image"]

_HEAD = 32  # bytes for each file: base/files/packed_files.h


class ImageReadMode(enum.Enum):
    """Which channels a decoded image has; torchvision.io.ImageReadMode, as far as JPEG files have them."""

    UNCHANGED = 0
    GRAY = 1
    RGB = 3


def _mode(mode: Any) -> ImageReadMode:
    if isinstance(mode, ImageReadMode):
        return mode
    try:
        return ImageReadMode[str(mode).upper()]
    except KeyError:
        raise ValueError(f"decode_jpeg: mode: {mode!r}; must be one of {[m.name for m in ImageReadMode]}") from None


def _content(file: Any, index: int) -> tuple[bytes, Any]:
    """The name and the content of a file, one of which is empty; None is a file that is not there."""
    import numpy as np

    if file is None:
        return b"", b""
    if isinstance(file, (str, os.PathLike)):
        name = os.fsencode(file)
        if not name:
            raise ValueError(f"io.pack: file {index}: its name is empty; None is a file that is not there")
        return name, b""
    if isinstance(file, Tensor):
        file = file.numpy()
    if isinstance(file, np.ndarray) and (file.dtype != np.uint8 or file.ndim != 1):
        raise TypeError(f"io.pack: file {index}: is {file.dtype}{file.shape}; must be its bytes, uint8 of one axis")
    if not isinstance(file, (bytes, bytearray, memoryview, np.ndarray)):
        raise TypeError(f"io.pack: file {index}: is {type(file).__name__}; must be a path, bytes, a uint8 tensor or array, or None")
    if len(file) == 0:
        raise ValueError(f"io.pack: file {index}: is empty; None is a file that is not there")
    return b"", file


def pack(files: Any, *, count: int | None = None, room: int | None = None) -> Any:
    """Files as one NumPy array of uint8, which plans can pass on.

    files: of each its path, to be read later, or its content: bytes, or a tensor or array of uint8; None: it is not there, and
        its image is black.
    count: for how many files; those that are missing at the end are not there.
    room: how many bytes the array has; None: as many as it takes.
    """
    import numpy as np

    entries = [_content(file, i) for i, file in enumerate(files)]
    count = len(entries) if count is None else count
    if len(entries) > count:
        raise ValueError(f"io.pack: {len(entries)} files; count is {count}")
    head, at, parts = np.zeros((count, 4), np.int64), count * _HEAD, []
    for row, entry in zip(head, entries):
        for k, part in enumerate(entry):
            row[2 * k:2 * k + 2] = at, len(part)
            at += len(part)
            parts.append(np.frombuffer(part, np.uint8))
    if room is not None and room < at:
        raise ValueError(f"io.pack: {count} files take {at} bytes; room is {room}")
    packed = np.zeros(at if room is None else room, np.uint8)
    packed[:count * _HEAD] = head.reshape(-1).view(np.uint8)
    packed[count * _HEAD:at] = np.concatenate(parts) if parts else 0
    return packed


def _natural(file: Any, mode: ImageReadMode) -> Tensor:
    """A file's image in the size that it has."""
    name, content = _content(file, 0)
    if name:
        content = read_file(file).numpy()
    try:
        channels, height, width = fn.jpeg_shape(bytes(content))
    except ValueError as error:
        raise type(error)(f"decode_jpeg: {os.fsdecode(name) + ': ' if name else ''}{error}") from None
    wanted = (3 if channels == 3 else 1) if mode is ImageReadMode.UNCHANGED else mode.value
    return fn.decode_jpeg(from_numpy(pack([content])), None, None, 1, height, width, wanted)[0]


def decode_jpeg(input: Any, size: Any = None, *, mode: Any = None, boxes: Any = None, flip: Any = None,  # noqa: A002
                count: int | None = None) -> Any:
    """JPEG files as images, uint8; torchvision.io.decode_jpeg, with resizing.

    input: a list of files, as pack() takes them: (N, C, height, width). One file: (C, height, width). With `count`, what pack() made,
        as a tensor, in a graph one of the graph's: (count, C, height, width).
    size: (height, width), or an int for both. The filter is linear, and where it makes images smaller as wide as the scale, as
        Pillow's BILINEAR. None: as the file is; only for one file or a list of them, which then is a list of images.
    mode: "RGB" or "GRAY"; "UNCHANGED", for one file without size: as the file is. Default: RGB, or unchanged without size.
    boxes: float32 or float64 (N, 4): top, left, height and width of the part that is shown, in parts of the image, rounded to pixels.
    flip: bool (N): left to right.

    The images are made on `get_num_threads()` threads, without the GIL. An error names the file: its number, and its path. OSError where it
    cannot be read, ValueError where it is no JPEG file, ends early or is broken.
    """
    one = isinstance(input, (str, os.PathLike, bytes, bytearray, memoryview)) or (count is None and not isinstance(input, (list, tuple)))
    if size is None:
        if boxes is not None or flip is not None or count is not None:
            raise ValueError("decode_jpeg: size: None; boxes, flip and count need the size of the images")
        wanted = ImageReadMode.UNCHANGED if mode is None else _mode(mode)
        return _natural(input, wanted) if one else [_natural(file, wanted) for file in input]
    wanted = _mode(ImageReadMode.RGB if mode is None else mode)
    if wanted is ImageReadMode.UNCHANGED:
        raise ValueError("decode_jpeg: mode: UNCHANGED with a size; must be RGB or GRAY, which all images have then")
    height, width = (size, size) if isinstance(size, Integral) else size
    boxes, flip = (None if given is None else as_tensor(given) for given in (boxes, flip))
    if count is not None:
        if not isinstance(input, Tensor):
            input = as_tensor(input)  # noqa: A001
        with device("cpu"):  # where files are
            return fn.decode_jpeg(input, boxes, flip, count, height, width, wanted.value)
    files = [input] if one else list(input)
    images = fn.decode_jpeg(from_numpy(pack(files)), boxes, flip, len(files), height, width, wanted.value)
    return images[0] if one else images


def read_file(path: Any) -> Tensor:
    """The bytes of a file, uint8 of one axis; torchvision.io.read_file. Raises OSError."""
    import numpy as np

    return from_numpy(np.fromfile(os.fspath(path), np.uint8))


def read_image(path: Any, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """A JPEG file as an image, uint8 (C, height, width); torchvision.io.read_image."""
    return decode_jpeg(os.fspath(path), mode=mode)
