"""A U-Net that segments discs in noise: transposed convolutions, an interpolation, skip connections, Dice loss."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False), nn.BatchNorm2d(out_channels), nn.ReLU(True),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False), nn.BatchNorm2d(out_channels), nn.ReLU(True))

    def forward(self, x):
        return self.block(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
                                    nn.Conv2d(in_channels, out_channels, 1))
        else:
            self.up = nn.ConvTranspose2d(in_channels, out_channels, kernel_size=2, stride=2)
        self.conv = DoubleConv(2 * out_channels, out_channels)

    def forward(self, x, skip):
        x = self.up(x)
        dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    def __init__(self, channels=(8, 16, 32)):
        super().__init__()
        a, b, c = channels
        self.inc = DoubleConv(1, a)
        self.down = nn.ModuleList([DoubleConv(a, b), DoubleConv(b, c)])
        self.up1 = Up(c, b, bilinear=False)
        self.up2 = Up(b, a, bilinear=True)
        self.outc = nn.Conv2d(a, 1, kernel_size=1)

    def forward(self, x):
        skips = [self.inc(x)]
        for block in self.down:
            skips.append(block(F.max_pool2d(skips[-1], 2)))
        x = self.up1(skips[2], skips[1])
        x = self.up2(x, skips[0])
        return self.outc(x)


def initialise(model, seed=0):
    rng = np.random.default_rng(seed)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            p.data = torch.tensor(rng.normal(0, (2 / p[0].numel()) ** 0.5, tuple(p.shape)), dtype=torch.float32)
        elif name.endswith("bias"):
            p.data.zero_()


def dice_loss(logits, target, eps=1.0):
    probability = torch.sigmoid(logits)
    overlap = (probability * target).sum(dim=(1, 2, 3))
    return 1 - ((2 * overlap + eps) / (probability.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3)) + eps)).mean()


def batch(rng, size=8, extent=22):
    ys, xs = np.mgrid[0:extent, 0:extent]
    centre, radius = rng.uniform(5, extent - 5, (2, size, 1, 1)), rng.uniform(3, 6, (size, 1, 1))
    mask = ((ys - centre[0]) ** 2 + (xs - centre[1]) ** 2 < radius ** 2).astype(np.float32)[:, None]
    return torch.from_numpy(mask + rng.normal(0, 0.5, mask.shape).astype(np.float32)), torch.from_numpy(mask)


def main():
    model = UNet()
    initialise(model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-4, eps=1e-3, momentum=0.9)

    def loss_of(x, mask):
        logits = model(x)
        return F.binary_cross_entropy_with_logits(logits, mask) + dice_loss(logits, mask)

    def train_step(x, mask):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x, mask)
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        return loss

    if "--graph" in sys.argv and hasattr(nn, "Graph"):
        class TrainStep(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, x, mask):
                loss = loss_of(x, mask)
                loss.backward()
                torch.nn.utils.clip_grad_value_(self.model.parameters(), 0.1)
                return loss

        train_step = TrainStep()

    rng = np.random.default_rng(1)
    for step in range(12):
        print(step, f"{train_step(*batch(rng)).item():.8g}")


if __name__ == "__main__":
    main()
