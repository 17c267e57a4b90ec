"""Makes the model repository of the example: the digits net, trained for a moment, as version 1 of `digits`.

    python examples/serving/model.py out/serving/models
"""

import argparse
import pathlib
from typing import Any

import numpy as np
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

import sluice as sl
from digits_net import DigitsNet
from sluice.nn import functional as F

MEAN, STD, BATCH = 4.88, 6.02, 32


class Train(sl.nn.Graph):
    def __init__(self, net: DigitsNet) -> None:
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True))

    def build(self, images: sl.Tensor, labels: sl.Tensor) -> sl.Tensor:
        loss = F.cross_entropy(self.net((images - MEAN) / STD), labels)
        loss.backward()
        return loss


class Classify(sl.nn.Graph):
    """Logits of an image of (1, 1, 8, 8) in 0..16."""

    def __init__(self, net: DigitsNet) -> None:
        super().__init__(name="digits")
        self.net = net.eval()

    def build(self, image: sl.Tensor) -> sl.Tensor:
        logits: sl.Tensor = self.net((image - MEAN) / STD)
        return logits


def data() -> tuple[Any, Any, Any, Any]:
    """Training images, held-out images, and their labels."""
    digits = load_digits()
    images = digits.images.astype(np.float32)[:, None]
    split: tuple[Any, Any, Any, Any] = tuple(train_test_split(images, digits.target, test_size=0.2, random_state=0))
    return split


def trained(epochs: int) -> DigitsNet:
    sl.manual_seed(0)
    net = DigitsNet()
    train = Train(net)
    images, _, labels, _ = data()
    order = np.random.default_rng(0)
    for _ in range(epochs):
        for rows in order.permutation(len(images))[:len(images) // BATCH * BATCH].reshape(-1, BATCH):
            train(sl.from_numpy(images[rows]), sl.from_numpy(labels[rows]))
    return net


def save(net: DigitsNet, repository: pathlib.Path, version: int = 1) -> Classify:
    """Writes <repository>/digits/<version>/model. There is no config: the server reads the signature from the bundle."""
    graph = Classify(net)
    graph(sl.zeros(1, 1, 8, 8))
    folder = repository / "digits" / str(version) / "model"
    folder.parent.mkdir(parents=True, exist_ok=True)
    sl.save(graph, folder)
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    graph = save(trained(args.epochs), args.repository)
    _, images, _, labels = data()
    right = sum(int(graph(sl.from_numpy(image[None])).numpy().argmax() == label) for image, label in zip(images, labels))
    print(f"digits: {right / len(labels):.1%} of {len(labels)} held-out images are right; written to {args.repository}")


if __name__ == "__main__":
    main()
