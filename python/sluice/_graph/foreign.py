"""Options that hand parts of a graph to a foreign backend."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from sluice import _C


def _name_library(variable: str, package: str, pattern: str) -> None:
    """Names the library in a package of Python's for its adapter, where nobody has named one."""
    if os.environ.get(variable):
        return
    found = importlib.util.find_spec(package)
    folders = found.submodule_search_locations if found else None
    for folder in folders or []:
        for library in sorted(Path(folder).glob(pattern))[:1]:
            os.environ[variable] = str(library)


def _name_onednn() -> None:
    """oneDNN's packages have no Python: their library lies in the environment's folder."""
    library = Path(sys.prefix, "lib/libdnnl.so.3")
    if library.exists():
        os.environ.setdefault("SLUICE_ONEDNN_LIBRARY", str(library))


class ForeignOptions:
    """A part of GraphConfig."""

    _options: dict[str, Any]

    def _set(self, name: Any, value: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}: no _set(); a class with options of backends must define it")

    def enable_backend(self, backend: Any, **options: Any) -> None:
        """Has parts of the graph computed by a foreign backend: the path of a library for sluice/offload.h, or the name of one
        (docs/backends.md). None: by none. It is asked about each node; what it does not take Sluice computes. A line on stderr tells how
        much that is, and `sluice.backends.offloaded(graph)` why.

        options: what the backend is told, such as precision="fp16" or calibration="table.json". Which ones there are is its matter.
        """
        if backend is None and options:
            raise ValueError(f"enable_backend: got {sorted(options)} for no backend; name the backend, too")
        given = "" if backend is None else os.fspath(backend)
        wrong = [name for name, value in options.items() if not isinstance(value, (str, int, float, os.PathLike))]
        if wrong:
            raise TypeError(f"enable_backend: {wrong[0]}: got {type(options[wrong[0]]).__name__}; must be a text, a number or a path")
        if given:
            _C.load_foreign(given)
        self._set("backend", given)
        self._set("backend_options", [f"{name}={os.fspath(v) if isinstance(v, os.PathLike) else v}" for name, v in options.items()])

    def _enable(self, name: str, mode: bool, options: dict[str, Any]) -> None:
        if mode:
            self.enable_backend(name, **options)
        elif self._options.get("backend") == name:
            self.enable_backend(None)

    def enable_onnxruntime(self, mode: bool = True, **options: Any) -> None:
        """enable_backend("onnxruntime"): parts of the graph that have a form in ONNX run in ONNX Runtime, of Python's package or of
        $SLUICE_ONNXRUNTIME_LIBRARY. options: optimization=0, 1, 2 or 99 (all, the default)."""
        if mode:
            _name_library("SLUICE_ONNXRUNTIME_LIBRARY", "onnxruntime", "capi/libonnxruntime.so*")
        self._enable("onnxruntime", mode, options)

    def enable_openvino(self, mode: bool = True, **options: Any) -> None:
        """enable_backend("openvino"): parts of the graph that have a form in ONNX run in OpenVINO on the CPU, of Python's package or of
        $SLUICE_OPENVINO_LIBRARY. options: precision="fp32" (the default), "bf16" or "fp16". NotImplementedError where Sluice was built
        without OpenVINO's headers."""
        if mode:
            _name_library("SLUICE_OPENVINO_LIBRARY", "openvino", "libs/libopenvino_c.so*")
        self._enable("openvino", mode, options)

    def enable_tensorrt(self, mode: bool = True, **options: Any) -> None:
        """enable_backend("tensorrt"). There is no adapter to TensorRT in this version: NotImplementedError says what takes its place."""
        self._enable("tensorrt", mode, options)

    def enable_xla_jit(self, mode: bool = True, **options: Any) -> None:
        """enable_backend("xla"). There is no adapter to XLA in this version: NotImplementedError says what takes its place."""
        self._enable("xla", mode, options)

    def enable_onednn_graph(self, mode: bool = True, **options: Any) -> None:
        """enable_backend("onednn_graph"): parts of the graph run as partitions of oneDNN's graphs, by the oneDNN 3 of Python's package
        onednn-cpu-gomp or of $SLUICE_ONEDNN_LIBRARY; Sluice's own kernels call oneDNN's primitives, maybe of another version. options:
        precision="fp32" (the default) or "bf16", where products may round what they read. NotImplementedError where Sluice was built
        without oneDNN 3's headers."""
        if mode:
            _name_onednn()
        self._enable("onednn_graph", mode, options)
