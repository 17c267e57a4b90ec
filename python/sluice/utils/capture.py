"""Captures of what a graph does: a folder that runs, compares and is measured without the program.

    with capture("work"):
        for x, y in batches:
            train(x, y)

    sluice-run work     # all steps again; says whether the results are the same, bit for bit
    sluice-bench work   # how long they take
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from sluice import _C
from sluice._base.replaced_file import replaced
from sluice._graph import recording
from sluice._tensor.pickling import bytes_of, check_concrete
from sluice.utils import safetensors
from sluice.version import __version__


class capture:
    """Writes the steps of a graph that run inside of the `with` block to a new folder: the graph as a bundle, with its weights
    before the first of the steps, the inputs of each step, and a digest of its results.

    Each step is waited for. A graph has one plan and no function of Python: such a plan does not run without the program. What the
    program itself does to weights between steps is not in the folder.
    """

    def __init__(self, path: Any) -> None:
        self._path = os.fspath(path)
        self._call: Any = None
        self._digests: list[str] = []

    def __enter__(self) -> capture:
        if os.path.exists(self._path):
            raise _C.ValueError(f"capture: {self._path}: it is there already; a capture is a folder of its own")
        recording.capture_with(self)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        recording.capture_with(None)
        if kind is not None:
            return
        if not self._digests:
            raise _C.RuntimeError("capture: no graph has run; call one inside of the block")
        with replaced(os.path.join(self._path, "capture.json")) as file:
            file.write(json.dumps({"sluice_capture": 1, "version": __version__, "digests": self._digests}).encode() + b"\n")

    def begin_step(self, call: Any, inputs: Any) -> None:
        """Before a step, which may take the memory of its inputs."""
        if self._call is None:
            self._begin(call)
        elif self._call is not call:
            raise NotImplementedError(f"capture: '{call.name}' has another plan than the one of '{self._call.name}' whose steps are captured; "
                                      "a capture is of one plan")
        if inputs:
            tensors = {str(i): _whole(tensor) for i, tensor in enumerate(inputs)}
            safetensors.save_file(tensors, os.path.join(self._path, "steps", f"{len(self._digests)}.safetensors"))

    def end_step(self, outputs: Any) -> None:
        """When it is submitted."""
        digests = "".join(hashlib.sha256(bytes_of(_whole(tensor))).hexdigest() for tensor in outputs)
        self._digests.append(hashlib.sha256(digests.encode()).hexdigest())

    def _begin(self, call: Any) -> None:
        if call.functions():
            raise NotImplementedError(f"capture: '{call.name}' calls functions of Python: {', '.join(sorted(call.functions()))}; its plan "
                                      "does not run without the program. Give what they return as inputs")
        call.synchronize()
        os.makedirs(os.path.join(self._path, "steps"))
        call.save(os.path.join(self._path, "bundle"))
        self._call = call


def _whole(tensor: Any) -> Any:
    check_concrete("capture", tensor)
    return tensor.detach().cpu().contiguous()
