"""The smallest model of each file of timm's models, at a small size."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from ecosystem.beside import modules
from ecosystem.compare import STEPS, check

# A line for each file: file, model, height and width (0: the model's own), options.
TABLE = Path(__file__).with_name("timm_models.txt")


def cases() -> dict[str, tuple[str, int, str]]:
    """By file, the model, its size and its options."""
    lines = [line.split(None, 3) for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return {file: (model, int(size), rest[0] if rest else "") for file, model, size, *rest in lines}


@functools.cache
def both() -> tuple[Any, Any]:
    return modules("timm")


def run(file: str, batch: int = 2, seconds: int = 240, steps: Sequence[str] = STEPS) -> dict[str, str]:
    model, size, options = cases()[file]
    named: dict[str, Any] = eval(f"dict({options})")  # our own table
    ours, theirs = both()
    made = [lambda lib=lib: lib.create_model(model, num_classes=10, **named) for lib in (ours, theirs)]
    config = theirs.get_pretrained_cfg(model)
    images = np.random.default_rng(1).normal(size=(batch, *(config.input_size if not size else (config.input_size[0], size, size))))
    return check(*made, (images.astype(np.float32),), seconds=seconds, steps=steps)
