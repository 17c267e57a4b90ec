"""torchvision, which tools/setup.sh keeps beside the environment for tests alone, on Sluice and on torch."""

import contextlib
import importlib
import importlib.util
import pathlib

import pytest
import torch

import sluice as sl

BESIDE = pathlib.Path(__file__).resolve().parents[2] / ".venv/torchvision"
INSTALLED = importlib.util.find_spec("torchvision") is not None
needs_torchvision = pytest.mark.skipif(not INSTALLED and not BESIDE.is_dir(), reason="torchvision is not installed")


@contextlib.contextmanager
def both(name):
    """torchvision's module of that name: (Sluice's, torch's)"""
    with pytest.MonkeyPatch.context() as patch:
        if not INSTALLED:
            patch.syspath_prepend(str(BESIDE))
        with sl.mock_torch(lazy=True):
            ours = importlib.import_module(f"torchvision.{name}")
        try:
            theirs = importlib.import_module(f"torchvision.{name}")
        except RuntimeError:  # its library was built for another torch; its Python then lacks the declarations of ops
            for op in ("nms", "qnms"):
                torch.library.define(f"torchvision::{op}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            theirs = importlib.import_module(f"torchvision.{name}")
        assert ours is not theirs
        yield ours, theirs
