"""Files that take the place of others when they are complete."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import Any, BinaryIO, Iterator


@contextlib.contextmanager
def replaced(path: Any) -> Iterator[BinaryIO]:
    """A file to write: `path` has what it had, until the block ends, and then all of the new one, whatever happens.

    The new content lies beside it under a name that nothing had, and goes if the block raises. Links, pipes and devices are
    written to as they are.
    """
    path = os.fspath(path)
    try:
        before = os.lstat(path)
    except OSError:
        before = None
    if before is not None and not stat.S_ISREG(before.st_mode):
        with open(path, "wb") as file:
            yield file
        return
    folder, name = os.path.split(path)
    scratch = os.path.join(folder, f".sluice-saving-{secrets.token_hex(8)}")
    with open(scratch, "xb") as file:
        try:
            yield file
            file.close()
            if before is not None:
                os.chmod(scratch, stat.S_IMODE(before.st_mode))
            os.replace(scratch, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(scratch)
            raise
