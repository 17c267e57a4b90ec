"""The network of the digits example: a small residual net for 8x8 grey images."""

import sluice as sl
import sluice.nn as nn


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut; `stride` halves the image."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: sl.Tensor) -> sl.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        result: sl.Tensor = self.relu(self.bn2(self.conv2(y)) + self.shortcut(x))
        return result


class DigitsNet(nn.Module):
    """(N, 1, 8, 8) images to (N, 10) logits."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.Sequential(Block(width, width), Block(width, 2 * width, stride=2), Block(2 * width, 4 * width, stride=2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x: sl.Tensor) -> sl.Tensor:
        logits: sl.Tensor = self.head(self.pool(self.blocks(self.stem(x))).flatten(1))
        return logits
