"""ResNet-18, a quarter as wide, on synthetic images of stripes; SGD with Nesterov momentum and a cosine schedule."""

import sys

import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import CosineAnnealingLR


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or in_planes != planes:
            self.downsample = nn.Sequential(nn.Conv2d(in_planes, planes, kernel_size=1, stride=stride, bias=False),
                                            nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, block, num_blocks, width=16, num_classes=4):
        super().__init__()
        self.in_planes = width
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.layer1 = self._make_layer(block, width, num_blocks[0], stride=1)
        self.layer2 = self._make_layer(block, 2 * width, num_blocks[1], stride=2)
        self.layer3 = self._make_layer(block, 4 * width, num_blocks[2], stride=2)
        self.layer4 = self._make_layer(block, 8 * width, num_blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width * block.expansion, num_classes)

    def _make_layer(self, block, planes, count, stride):
        layers = []
        for s in [stride] + [1] * (count - 1):
            layers.append(block(self.in_planes, planes, s))
            self.in_planes = planes * block.expansion
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def initialise(module, rng=np.random.default_rng(0)):
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        fan_in = module.weight[0].numel()
        with torch.no_grad():
            module.weight.copy_(torch.from_numpy(rng.normal(0, (2 / fan_in) ** 0.5, tuple(module.weight.shape))))
    if isinstance(module, BasicBlock):  # each block begins as the identity
        nn.init.zeros_(module.bn2.weight)
    if isinstance(module, nn.Linear):
        nn.init.constant_(module.bias, 0)


def batches(steps, size, rng):
    ys, xs = np.mgrid[0:16, 0:16]
    directions = np.stack([xs, ys, xs + ys, xs - ys])
    for _ in range(steps):
        labels = rng.integers(0, 4, size)
        images = np.sin(directions[labels] + rng.random((size, 1, 1)) * 6)[:, None] + rng.normal(0, 0.3, (size, 3, 16, 16))
        yield torch.tensor(images, dtype=torch.float32), torch.tensor(labels)


def main(steps=10):
    model = ResNet(BasicBlock, [2, 2, 2, 2])
    model.apply(initialise)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = CosineAnnealingLR(optimizer, T_max=steps)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    if "--graph" in sys.argv and hasattr(nn, "Graph"):
        class TrainStep(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer, lr_sch=scheduler)

            def build(self, x, y):
                loss = criterion(self.model(x), y)
                loss.backward()
                return loss

        train_step = TrainStep()

    model.train()
    for step, (x, y) in enumerate(batches(steps, 16, np.random.default_rng(1))):
        print(step, f"{train_step(x, y).item():.8g}")
    model.eval()
    x, y = next(batches(1, 64, np.random.default_rng(2)))
    with torch.no_grad():
        print("eval", f"{criterion(model(x), y).item():.8g}")


if __name__ == "__main__":
    main()
