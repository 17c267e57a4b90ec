"""The parts that digits.yaml names: scikit-learn's handwritten digits as pipelines, and a small net."""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

import sluice as sl
from sluice import data, nn

TRAIN = 1500  # the rest is for evaluation


def rows(part: str, seed: int = 0) -> Any:
    """(image, class) of "train", shuffled, or of "test"."""
    digits = load_digits()
    images = (digits.data.astype(np.float32) - 4.88) / 6.02
    if part == "test":
        return data.arrays(images[TRAIN:], digits.target[TRAIN:])
    return data.arrays(images[:TRAIN], digits.target[:TRAIN], seed=seed).shuffle()


class Net(nn.Module):
    """(N, 64) to (N, 10)."""

    def __init__(self, width: int = 64, dropout: float = 0.1) -> None:
        super().__init__()
        self.up, self.down, self.head = nn.Linear(64, width), nn.Linear(width, 64), nn.Linear(64, 10)
        self.norm, self.drop = nn.LayerNorm(64), nn.Dropout(dropout)

    def forward(self, x: sl.Tensor) -> sl.Tensor:
        x = x + self.drop(self.down(self.up(self.norm(x)).relu()))
        result: sl.Tensor = self.head(x)
        return result
