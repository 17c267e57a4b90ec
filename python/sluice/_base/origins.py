"""Whose code a file has: the user's, a library's, Python's or Sluice's."""

import functools
import os
import sysconfig

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_HERE_TOO = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
_STANDARD = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<frozen")
_LIBRARY = (*_STANDARD, sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def is_ours(file: str) -> bool:
    return file.startswith((_HERE, _HERE_TOO, "<frozen", "<string>"))


@functools.lru_cache(maxsize=4096)
def is_standard(file: str) -> bool:
    """Code of Python itself."""
    return file.startswith(_STANDARD) and "site-packages" not in file and "dist-packages" not in file


@functools.lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Code of the user, not of a library."""
    if file == "<string>":  # of `python -c`, and what exec() was given
        return True
    return bool(file) and not is_ours(file) and not file.startswith(_LIBRARY) and "site-packages" not in file
