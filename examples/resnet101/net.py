"""ResNet-101, and images for it. This file is written for torch and has no word of Sluice: `python net.py` runs it with torch, and
case_study.py imports it with Sluice in the place of torch.

    python examples/resnet101/net.py [--size 224] [--state out/resnet101/state.npz] [IMAGE ...]      the class of each image
"""

import argparse
import pathlib

import numpy as np
import torch
from PIL import Image
from torch import nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.narrow, self.middle = conv_norm(inputs, width, 1), conv_norm(width, width, 3, stride)
        self.wide = conv_norm(width, 4 * width, 1)
        nn.init.zeros_(self.wide[1].weight)  # so that a net without training passes its input on
        self.shortcut = nn.Identity() if inputs == 4 * width else conv_norm(inputs, 4 * width, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.middle(torch.relu(self.narrow(x))))
        return torch.relu(self.wide(y) + self.shortcut(x))


class ResNet101(nn.Module):
    """(N, 3, H, W) to (N, classes): He et al., Deep Residual Learning for Image Recognition."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        stages, inputs = [], 64
        for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 23, 2), (512, 3, 2)):
            for block in range(blocks):
                stages.append(Bottleneck(inputs, width, stride if block == 0 else 1))
                inputs = 4 * width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


def photographs(paths: list[str], size: int) -> np.ndarray:
    """The middle of each image, (N, 3, size, size) of float32, normalised. Without paths: scikit-learn's two photographs."""
    if not paths:
        import sklearn.datasets

        folder = pathlib.Path(sklearn.datasets.__file__).parent / "images"
        paths = [str(folder / name) for name in ("china.jpg", "flower.jpg")]
    rows = []
    for path in paths:
        image = Image.open(path).convert("RGB")
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        pixels = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + side, top + side)), np.float32) / 255
        rows.append(((pixels - np.array(MEAN, np.float32)) / np.array(STD, np.float32)).transpose(2, 0, 1))
    return np.stack(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", nargs="*", metavar="IMAGE")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--state", type=pathlib.Path, default=pathlib.Path("out/resnet101/state.npz"), help="as case_study.py writes it")
    args = parser.parse_args()
    net = ResNet101().eval()
    net.load_state_dict({name: torch.from_numpy(array) for name, array in np.load(args.state).items()})
    with torch.no_grad():
        scores = net(torch.from_numpy(photographs(args.images, args.size)))
    print("torch   OK  top-1", scores.argmax(1).tolist())


if __name__ == "__main__":
    main()
