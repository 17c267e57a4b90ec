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


class Inverted(nn.Module):
    """An inverted residual block (MobileNetV2): wider, a convolution of each channel, narrower."""

    def __init__(self, inputs: int, outputs: int, stride: int, wider: int, kernel: int = 3) -> None:
        super().__init__()
        inner = inputs * wider
        first = [nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()] if wider > 1 else []
        self.branch = nn.Sequential(
            *first, nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
            nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return self.branch(x) + x if self.shortcut else self.branch(x)


# (wider, channels, kernels of blocks, stride): narrow where pictures are large, as MCUNet is (Lin et al. 2020).
STAGES = ((1, 8, (3,), 1), (3, 16, (7, 3), 2), (5, 24, (5, 5, 3), 2), (6, 40, (7, 5, 3), 2), (6, 48, (3, 5), 1), (6, 96, (5, 3, 5), 2),
          (6, 160, (3,), 1))


def mcunet(classes: int = 10) -> nn.Sequential:
    """A net of the kind of MCUNet, for pictures of 3 x 128 x 128."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()]
    channels = 16
    for wider, outputs, kernels, stride in STAGES:
        for block, kernel in enumerate(kernels):
            layers.append(Inverted(channels, outputs, stride if block == 0 else 1, wider, kernel))
            channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


LAST = "n_bias_update: 6\nmanual_weight_idx: 40-41-42-43-44-45\n"
# A scheme for mcunet() in the words of tiny-training: biases of the last seven layers, and parts of convolutions that make blocks wider.
SPARSE_BLOCKS = "n_bias_update: 7\nmanual_weight_idx: 39-42-45\nweight_update_ratio: 0.25-0.25-1\n"


def mcunet_task() -> tuple[nn.Module, list[Any], tuple[Any, Any]]:
    """mcunet(), what calibrates it, and the arguments of a step: a picture of bytes, as a camera gives it."""
    sl.manual_seed(0)
    picture = sl.rand(1, 3, 128, 128)
    return mcunet(), [picture], ((picture * 255).to(sl.uint8), sl.tensor([1]))


def memory_table() -> sl.tiny.MemoryTable:
    schemes = {"full": "full", "bias only": "bias-only", "last 6": LAST, "sparse": SPARSE_BLOCKS, "last only": "last-only"}
    return sl.tiny.memory_table(*mcunet_task(), schemes)
