"""Settings of what computes, by torch's names; backends of further kinds of devices; and foreign backends, which compute parts of
graphs in Sluice's place."""

from __future__ import annotations

import os
from typing import Any, Union

from sluice import _C
from sluice.backends import cuda, cudnn, mkldnn, mps, opt_einsum

__all__ = ["cuda", "cudnn", "load", "mkldnn", "mps", "offloaded", "opt_einsum"]


def load(path: Union[str, os.PathLike[str]]) -> str:
    """Makes the shared library at `path` the backend of a kind of device, in this process, or loads a foreign backend, also by its name;
    returns the kind of device, or the backend's name.

    Loading it again changes nothing. `docs/adding-a-device.md` and `docs/backends.md` say how such libraries are made. A graph loads
    the foreign backend that `config.enable_backend()` names by itself; a bundle never loads code, so where its plan was made for a
    backend, Sluice computes what the backend would, unless it was loaded by this. Raises `NotImplementedError` when it is no backend of
    this build, and `ValueError` when its kind has another backend.
    """
    return _C.load_backend(os.fspath(path))


def offloaded(graph: Any) -> dict[str, Any]:
    """The part of a compiled graph that a foreign backend has taken: `line`, the report in one line; `clusters`, how many; and `nodes`, each
    with `op`, `module`, `source`, `flops`, its `cluster`, and where that is None the `reason`. `backend` is "" where none was asked."""
    if not graph.is_compiled:
        raise RuntimeError(f"offloaded: graph '{graph.name}' is not compiled; call it once, or compile(*inputs)")
    return graph._call.sessions()[0].offload()
