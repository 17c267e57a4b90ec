"""Trains the digits net more slowly than it could; docs/plan-viz.md finds out why from a recording, and mends it by `--slots 2`.

A host function distorts each batch, as another hand would have written the digits, before the net learns from it.
"""

import argparse
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

import sluice as sl
from digits_net import DigitsNet
from sluice.nn import functional as F

Array = npt.NDArray[Any]
BATCH = 64


class Distort:
    """Turns, stretches and moves each image a little, and normalises it. A pixel is the mean of nine points of the image before."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.points = (np.mgrid[0:24, 0:24].reshape(2, 576) - 11.5) / 3

    def __call__(self, images: Array) -> Array:
        n = len(images)
        turned = (np.eye(2) + self.random.normal(0, 0.15, (n, 2, 2))) @ self.points
        at = np.clip(turned + self.random.normal(4.5, 0.5, (n, 2, 1)), 0, 8.999)  # in the image with a border
        row, column = np.moveaxis(at.astype(np.intp), 1, 0)
        down, right = np.moveaxis(at % 1, 1, 0)
        padded, i = np.pad(images, ((0, 0), (1, 1), (1, 1))), np.arange(n)[:, None]
        above = padded[i, row, column] * (1 - right) + padded[i, row, column + 1] * right
        below = padded[i, row + 1, column] * (1 - right) + padded[i, row + 1, column + 1] * right
        pixels: Array = (above * (1 - down) + below * down).reshape(n, 1, 8, 3, 8, 3).mean((3, 5))
        return ((pixels - 4.88) / 6.02).astype(np.float32)


class Training(sl.nn.Graph):
    def __init__(self, slots: int) -> None:
        super().__init__(name="digits")
        self.net, self.distort, self.slots = DigitsNet(), Distort(), slots
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9))
        self.config.set_cores(max(1, sl.get_num_threads() - 1))  # one is left to the host stream

    def build(self, images: sl.Tensor, labels: sl.Tensor) -> sl.Tensor:
        with sl.register_quota(self.slots):
            batch = sl.host_function(self.distort, images, out=((BATCH, 1, 8, 8), sl.float32))
        loss = F.cross_entropy(self.net(batch), labels)
        loss.backward()
        return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, default=1, help="distorted batches that there is memory for")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--plan", help="a file for the plan")
    args = parser.parse_args()
    digits = load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target
    sl.manual_seed(0)
    training, random = Training(args.slots), np.random.default_rng(0)

    def batch() -> tuple[sl.Tensor, sl.Tensor]:
        rows = random.integers(0, len(images), BATCH)
        return sl.from_numpy(images[rows]), sl.from_numpy(labels[rows])

    losses: list[float] = []
    pending = [training(*batch())]  # compiles
    start = time.perf_counter()
    for _ in range(args.steps - 1):
        pending.append(training(*batch()))
        if len(pending) > 3:  # losses are read late, so that steps overlap
            losses.append(pending.pop(0).item())
    losses += [loss.item() for loss in pending]
    seconds = time.perf_counter() - start
    if args.plan:
        training.save_plan(args.plan)
    print(f"{args.steps / seconds:.0f} steps/s; loss {np.mean(losses[:10]):.2f}, at the end {np.mean(losses[-10:]):.2f}")


if __name__ == "__main__":
    main()
