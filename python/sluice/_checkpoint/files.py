"""The files of a checkpoint, and how they come to the disk: complete, or not under their names at all."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
from typing import Any, BinaryIO, Iterator

from sluice.errors import ValueError  # noqa: A004

INDEX = "checkpoint.json"  # a folder that has it is a checkpoint
MODEL_INDEX = "model.safetensors.index.json"  # for other programs: the tensors that are whole
REST = "rest.pt"  # what is no tensor
FORMAT = 1

_HIDDEN = ".sluice-checkpoint-"
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux


def shard(kind: str, rank: int, n: int) -> str:
    """The file of a rank: of "model" what is whole there and has the model's names, of "parts" the rest."""
    return f"{kind}-{rank + 1:05d}-of-{n:05d}.safetensors"


def check_name(path: str, name: Any) -> str:
    """A name of a file in the checkpoint, which must not lead elsewhere."""
    if not isinstance(name, str) or not name or name != os.path.basename(name) or name in (".", ".."):
        raise ValueError(f"checkpoint: {path}: the index names the file {name!r:.80}; must be the name of a file in the folder")
    return name


@contextlib.contextmanager
def synced(folder: str, name: str) -> Iterator[BinaryIO]:
    """A new file, all of which is on the disk when the block ends."""
    with open(os.path.join(folder, name), "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def begun(path: str) -> str:
    """A new hidden folder beside `path`, to fill."""
    parent = os.path.dirname(path)
    os.makedirs(parent, exist_ok=True)
    folder = os.path.join(parent, f"{_HIDDEN}{secrets.token_hex(8)}")
    os.mkdir(folder)
    return folder


def clean(parent: str) -> None:
    """Removes what saves that were killed have left. REQUIRES: nobody saves there."""
    for name in os.listdir(parent):
        if name.startswith(_HIDDEN):
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)


def commit(folder: str, path: str) -> None:
    """The folder is `path` from now on; what was there goes."""
    sync_folder(folder)
    if os.path.lexists(path):
        _exchange(folder, path)
        shutil.rmtree(folder, ignore_errors=True)
    else:
        os.rename(folder, path)
    sync_folder(os.path.dirname(path))


def _exchange(a: str, b: str) -> None:
    """Each has the other's place. Throws where the file system cannot do that at once."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"checkpoint: {b} is there, and this file system cannot put a folder into the place of another: "
                              f"{os.strerror(number)}; save to a new folder")


def remove(path: str) -> None:
    """The checkpoint goes, all of it at once."""
    hidden = os.path.join(os.path.dirname(path), f"{_HIDDEN}{secrets.token_hex(8)}")
    os.rename(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)
