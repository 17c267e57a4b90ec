"""Images from files: read, decoded, cut, resized and flipped by kernels, on several threads and without the GIL.

    images = sluice.io.decode_image(paths, (224, 224))            # uint8 (N, 3, 224, 224)

In a graph, a source says which files, and the plan does the rest (docs/data.md; sluice.data makes whole pipelines of it, docs/input-pipelines.md):

    files = sluice.host_function(names, out=((4096,), sluice.uint8))   # names() yields sluice.io.pack(paths, room=4096)
    images = sluice.io.decode_image(files, (224, 224), count=32)
"""

from __future__ import annotations

import enum
import os
from numbers import Integral
from typing import Any

from sluice import _C
from sluice._C import Tensor, fn
from sluice._tensor.creation import as_tensor, from_numpy
from sluice._base.device import device

__all__ = ["ImageReadMode", "decode_image", "decode_jpeg", "decode_png", "image_formats", "pack", "read_file", "read_image"]

_HEAD = 32  # bytes for each file: base/files/packed_files.h


class ImageReadMode(enum.Enum):
    """Which channels a decoded image has; torchvision.io.ImageReadMode, without transparency."""

    UNCHANGED = 0
    GRAY = 1
    RGB = 3


def _mode(mode: Any, where: str) -> ImageReadMode:
    if isinstance(mode, ImageReadMode):
        return mode
    try:
        return ImageReadMode[str(mode).upper()]
    except KeyError:
        raise ValueError(f"{where}: mode: {mode!r}; must be one of {[m.name for m in ImageReadMode]}") from None


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


def _op(where: str, files: Any, boxes: Any, flip: Any, *numbers: int) -> Any:
    if where == "decode_jpeg":
        return fn.decode_jpeg(files, boxes, flip, *numbers)
    count, height, width, channels = numbers
    return _C.ops.decode_image(files, boxes, flip, count=count, height=height, width=width, channels=channels)[0]


def _natural(where: str, file: Any, mode: ImageReadMode) -> Tensor:
    """A file's image in the size that it has."""
    name, content = _content(file, 0)
    if name:
        content = read_file(file).numpy()
    try:
        channels, height, width = (fn.jpeg_shape if where == "decode_jpeg" else fn.image_shape)(bytes(content))
    except ValueError as error:
        raise type(error)(f"{where}: {os.fsdecode(name) + ': ' if name else ''}{error}") from None
    wanted = (3 if channels == 3 else 1) if mode is ImageReadMode.UNCHANGED else mode.value
    return _op(where, from_numpy(pack([content])), None, None, 1, height, width, wanted)[0]


def _decode(where: str, given: Any, size: Any, mode: Any, boxes: Any, flip: Any, count: int | None) -> Any:
    one = isinstance(given, (str, os.PathLike, bytes, bytearray, memoryview)) or (count is None and not isinstance(given, (list, tuple)))
    if size is None:
        if boxes is not None or flip is not None or count is not None:
            raise ValueError(f"{where}: size: None; boxes, flip and count need the size of the images")
        wanted = ImageReadMode.UNCHANGED if mode is None else _mode(mode, where)
        return _natural(where, given, wanted) if one else [_natural(where, file, wanted) for file in given]
    wanted = _mode(ImageReadMode.RGB if mode is None else mode, where)
    if wanted is ImageReadMode.UNCHANGED:
        raise ValueError(f"{where}: mode: UNCHANGED with a size; must be RGB or GRAY, which all images have then")
    height, width = (size, size) if isinstance(size, Integral) else size
    boxes, flip = (None if value is None else as_tensor(value) for value in (boxes, flip))
    if count is not None:
        if not isinstance(given, Tensor):
            given = as_tensor(given)
        with device("cpu"):  # where files are
            return _op(where, given, boxes, flip, count, height, width, wanted.value)
    files = [given] if one else list(given)
    images = _op(where, from_numpy(pack(files)), boxes, flip, len(files), height, width, wanted.value)
    return images[0] if one else images


def decode_image(input: Any, size: Any = None, *, mode: Any = None, boxes: Any = None, flip: Any = None,  # noqa: A002
                 count: int | None = None) -> Any:
    """JPEG, PNG and, if image_formats() has it, WebP files as images, uint8; torchvision.io.decode_image, with resizing.

    input: a list of files, as pack() takes them: (N, C, height, width). One file: (C, height, width). With `count`, what pack() made,
        as a tensor, in a graph one of the graph's: (count, C, height, width).
    size: (height, width), or an int for both. The filter is linear, and where it makes images smaller as wide as the scale, as
        Pillow's BILINEAR. None: as the file is; only for one file or a list of them, which then is a list of images.
    mode: "RGB" or "GRAY"; "UNCHANGED", for one file without size: as the file is, without transparency. Default: RGB, or unchanged
        without size.
    boxes: float32 or float64 (N, 4): top, left, height and width of the part that is shown, in parts of the image, rounded to pixels.
    flip: bool (N): left to right.

    The images are made on `get_num_threads()` threads, without the GIL; of JPEG files no more is decoded than the box. An error names
    the file: its number, and its path. OSError where it cannot be read, ValueError where it is no such file, ends early or is broken.
    """
    return _decode("decode_image", input, size, mode, boxes, flip, count)


def decode_jpeg(input: Any, size: Any = None, *, mode: Any = None, boxes: Any = None, flip: Any = None,  # noqa: A002
                count: int | None = None) -> Any:
    """decode_image() of JPEG files alone; torchvision.io.decode_jpeg."""
    return _decode("decode_jpeg", input, size, mode, boxes, flip, count)


def decode_png(input: Any, mode: Any = None) -> Tensor:  # noqa: A002
    """decode_image() of one PNG file in the size that it has; torchvision.io.decode_png, without transparency and of 8 bits."""
    return _decode("decode_image", input, None, mode, None, None, None)


def image_formats() -> list[str]:
    """The formats that decode_image() of this build reads: "jpeg", "png", and "webp" where the build has found libwebp."""
    return list(fn.image_formats())


def read_file(path: Any) -> Tensor:
    """The bytes of a file, uint8 of one axis; torchvision.io.read_file. Raises OSError."""
    import numpy as np

    return from_numpy(np.fromfile(os.fspath(path), np.uint8))


def read_image(path: Any, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """A JPEG, PNG or WebP file as an image, uint8 (C, height, width); torchvision.io.read_image."""
    return decode_image(os.fspath(path), mode=mode)
