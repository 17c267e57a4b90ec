"""Packages that lie beside the environment, for whichever torch asks for them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, Iterator

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / ".venv/ecosystem", ROOT / ".venv/torchvision"]  # tools/setup.sh fills them
INSTALLED = all(folder.is_dir() for folder in FOLDERS)
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@contextlib.contextmanager
def on_path() -> Iterator[None]:
    """The packages can be imported, before those of the environment."""
    before = list(sys.path)
    sys.path[:0] = map(str, FOLDERS)
    try:
        yield
    finally:
        sys.path[:] = before


def nms(boxes: Any, scores: Any, iou_threshold: float) -> Any:
    """torchvision.ops.nms by its definition: the oracle, since its compiled library is for another build of torch."""
    import torch

    box, left = boxes.detach().double().numpy(), torch.argsort(scores, descending=True, stable=True).numpy()
    area, kept = (box[:, 2:] - box[:, :2]).prod(1), []
    while len(left):
        first, left = left[0], left[1:]
        kept.append(int(first))
        common = (np.minimum(box[first, 2:], box[left, 2:]) - np.maximum(box[first, :2], box[left, :2])).clip(0).prod(1)
        left = left[~(common / (area[first] + area[left] - common) > iou_threshold)]
    return torch.tensor(kept, dtype=torch.int64)


def compiled_ops() -> bool:
    """Whether torchvision's library of ops is for the torch that is installed. Then it is loaded."""
    import torch

    with on_path():
        spec = importlib.util.find_spec("torchvision")
    libraries = [] if spec is None or spec.origin is None else sorted(Path(spec.origin).parent.glob("_C*.so"))
    try:
        for library in libraries:
            torch.ops.load_library(str(library))
    except OSError:  # it needs symbols of another build
        return False
    return bool(libraries)


@functools.cache
def declare_ops() -> None:
    """torchvision's ops for the real torch, where its own library does not fit: nms is the one that its Python has no other way for."""
    import torch

    if compiled_ops():
        return
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # declared before
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch.library.impl("torchvision::nms", "CPU", nms)
    with on_path():
        import torchvision.ops.boxes

    torchvision.ops.boxes._assert_has_ops = lambda: None


def refuse_other_versions() -> None:
    """A process that has a package in the environment's version keeps parts of it: transformers adds methods to torch.nn.Module."""
    for package in ("huggingface_hub", "transformers"):
        found = getattr(sys.modules.get(package), "__file__", None)
        if found is not None and not any(Path(found).is_relative_to(folder) for folder in FOLDERS):
            raise ImportError(f"ecosystem: {package}: this process has imported {found}; run tests/ecosystem in a process of its own")


def modules(name: str) -> tuple[Any, Any]:
    """The module of that name on Sluice, and on torch."""
    import sluice as sl

    refuse_other_versions()
    with on_path():
        with sl.mock_torch(lazy=True):
            ours = importlib.import_module(name)
        declare_ops()
        theirs = importlib.import_module(name)
    assert ours is not theirs
    return ours, theirs
