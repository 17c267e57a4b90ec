"""Settings of what computes, by torch's names; and backends of further kinds of devices."""

from __future__ import annotations

import os
from typing import Union

from sluice import _C
from sluice.backends import cuda, cudnn, mkldnn, mps, opt_einsum

__all__ = ["cuda", "cudnn", "load", "mkldnn", "mps", "opt_einsum"]


def load(path: Union[str, os.PathLike[str]]) -> str:
    """Makes the shared library at `path` the backend of a kind of device, in this process; returns the kind, by name.

    Loading it again changes nothing. `docs/adding-a-device.md` says how such a library is made. Raises
    `NotImplementedError` when it is no backend of this build, and `ValueError` when its kind has another backend.
    """
    return _C.load_backend(os.fspath(path))
