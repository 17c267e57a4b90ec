"""What small machines learn: handwritten digits of 32 x 32 which have been turned, after digits that stand upright."""
from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Iterator

import numpy as np
from sklearn.datasets import load_digits

import sluice as sl
from sluice import nn
from sluice.nn import functional as F

TRAINED = 1000  # of 1,797 digits; the others measure
BATCH = 4


@dataclass(frozen=True)
class Images:
    """x: float32 (n, 1, 32, 32) in 0 to 1; y: int64 (n)."""

    x: Any
    y: Any

    def turned(self) -> Images:
        return Images(np.ascontiguousarray(np.rot90(self.x, axes=(2, 3))), self.y)

    def batches(self, epochs: int, seed: int, size: int = BATCH) -> Iterator[tuple[Any, Any]]:
        random = np.random.default_rng(seed)
        for _ in range(epochs):
            order = random.permutation(len(self.y))
            for at in range(0, len(order) - size + 1, size):
                chosen = order[at:at + size]
                yield sl.tensor(self.x[chosen]), sl.tensor(self.y[chosen])


def digits() -> tuple[Images, Images]:
    """Those that train, and those that measure."""
    found = load_digits()
    small = sl.tensor((found.images / 16).astype(np.float32)[:, None])
    x = F.interpolate(small, size=(32, 32), mode="bilinear", align_corners=False).numpy()
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], found.target.astype(np.int64)[order]
    return Images(x[:TRAINED], y[:TRAINED]), Images(x[TRAINED:], y[TRAINED:])


def network() -> nn.Sequential:
    def layer(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.ReLU()]

    return nn.Sequential(*layer(1, 8), *layer(8, 16), *layer(16, 32), nn.Flatten(), nn.Linear(512, 10))


SPARSE = "weights 2: 0.5\nweights 4: 1\nweights 7: 1\nbiases: 2 4 7\n"  # of network()


class FloatStep(nn.Graph):
    """The same step in floats."""

    def __init__(self, net: Any, *, lr: float) -> None:
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=lr))

    def build(self, x: Any, target: Any) -> Any:
        loss = F.cross_entropy(self.net(x), target)
        loss.backward()
        return loss


def accuracy(net: Any, images: Images) -> float:
    with sl.no_grad():
        return float((net(sl.tensor(images.x)).numpy().argmax(1) == images.y).mean())


def upright(train: Images, epochs: int = 12, seed: int = 0) -> nn.Sequential:
    """network(), after it has learned digits that stand upright."""
    sl.manual_seed(seed)
    net = network()
    step = FloatStep(net, lr=0.1)
    for batch in train.batches(epochs, seed, size=16):
        step(*batch)
    return net


def learn(net: Any, train: Images, step: Any, lr: float, epochs: int, seed: int = 0) -> None:
    """Steps of `step(net, lr=...)`, the last fifth of them of a fifth of the length."""
    batches = list(train.batches(epochs, seed))
    late = len(batches) * 4 // 5
    for rate, some in ((lr, itertools.islice(batches, late)), (lr / 5, itertools.islice(batches, late, None))):
        graph = step(net, lr=rate)
        for batch in some:
            graph(*batch)
