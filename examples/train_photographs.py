"""Trains a small net to tell parts of two photographs apart, from JPEG files that its own plan reads, decodes and augments.

Decoding runs on a stream of its own, one batch ahead of the net, so that both work at the same time; no process and no
thread is started for it by the program. Writes the photographs and result.json to --out.
"""

import argparse
import json
import pathlib
import random
import time

from PIL import Image
from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]
from tqdm import tqdm  # type: ignore[import-untyped]

import sluice as sl
from sluice import data
from sluice.nn import functional as F

BATCH, SIZE = 32, 64
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def write_photographs(folder: pathlib.Path, count: int, seed: int) -> None:
    """Parts of scikit-learn's two photographs, a folder for each."""
    draw = random.Random(seed)
    for name, pixels in zip(("china", "flower"), load_sample_images().images):
        image = Image.fromarray(pixels)
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            x, y = draw.randrange(image.width - 200), draw.randrange(image.height - 150)
            image.crop((x, y, x + 200, y + 150)).save(folder / name / f"{i:04}.jpg", quality=90)


class Training(sl.nn.Graph):
    """A step: the next batch of files, the net, and the update of its weights. The result is the loss."""

    def __init__(self, net: sl.nn.Module, train: data.Pipeline) -> None:
        super().__init__(name="train_photographs")
        self.net, self.train = net, train
        self.add_optimizer(sl.optim.Adam(net.parameters(), lr=2e-3))

    def build(self) -> sl.Tensor:
        with sl.stream("compute:1"):
            images, labels = self.train()
        loss = F.cross_entropy(self.net(images), labels)
        loss.backward()
        return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/photographs"))
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--files", type=int, default=200, help="of each photograph")
    options = parser.parse_args()
    write_photographs(options.out / "train", options.files, seed=0)
    write_photographs(options.out / "test", options.files // 4, seed=1)

    sl.manual_seed(0)
    nn = sl.nn
    net = nn.Sequential(nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.Linear(32, 2))
    train = (data.images(options.out / "train").shuffle().repeat().batch(BATCH)
             .decode(SIZE, crop=data.random_resized_crop((0.3, 1.0)), flip=0.5).normalize(MEAN, STD))
    training = Training(net, train)
    losses = [training()]  # compiles
    begin = time.perf_counter()
    losses += [training() for _ in tqdm(range(options.steps - 1), desc="train")]
    last = losses[-1].item()
    seconds = time.perf_counter() - begin

    right = total = 0
    for images, labels in data.images(options.out / "test").batch(BATCH).decode(SIZE).normalize(MEAN, STD):
        right += int((net(images).argmax(1) == labels).sum())
        total += len(labels)
    result = {"first_loss": losses[0].item(), "last_loss": last, "right": right, "total": total,
              "images_per_second": (options.steps - 1) * BATCH / seconds}
    (options.out / "result.json").write_text(json.dumps(result) + "\n")
    print(f"{options.steps} steps: loss {result['first_loss']:.3f} to {last:.3f}; {result['images_per_second']:.0f} JPEG files a second; "
          f"{right} of {total} other parts are told apart")


if __name__ == "__main__":
    main()
