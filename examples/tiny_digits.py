"""A network of 8-bit integers for a microcontroller that knows the digits 0 to 4, and learns 5 to 9 while it answers.

Each step is given a picture and gives its answer, and then learns what the picture was, by one step of gradient descent. Every
second picture is one of few old ones that the machine keeps, so that it does not forget them. Prints how many of the answers are
right, and writes the step to --out as C, with the first steps as the engine computes them: `make -C OUT check` compares every bit
on this machine, and `make -C OUT run-cortex-m4` in qemu.
"""

import argparse
from typing import Any, Iterator

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

import sluice as sl
import sluice.nn as nn
from sluice.nn import functional as F

Array = npt.NDArray[Any]
KEPT, WINDOW = 100, 100


class FloatStep(nn.Graph):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))

    def build(self, x: sl.Tensor, y: sl.Tensor) -> sl.Tensor:
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        return loss


def old_digits_learned(x: Array, y: Array, epochs: int) -> nn.Module:
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
                        nn.Linear(256, 10))
    step = FloatStep(net)
    for epoch in range(epochs):
        for chosen in np.split(np.random.default_rng(epoch).permutation(len(y))[: len(y) // 16 * 16], len(y) // 16):
            step(sl.tensor(x[chosen]), sl.tensor(y[chosen]))
    return net


def share_right(net: Any, x: Array, y: Array) -> float:
    with sl.no_grad():
        return float((net(sl.tensor(x)).numpy().argmax(1) == y).mean())


def stream(x: Array, y: Array, kept: Array, seed: int = 0) -> Iterator[int]:
    """The places of pictures: a new one, an old one that is kept, and so on."""
    random, new = np.random.default_rng(seed), np.flatnonzero(y >= 5)
    while True:
        for place in random.permutation(new):
            yield int(place)
            yield int(random.choice(kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--known", type=int, default=20, help="steps that check.c compares")
    parser.add_argument("--out", default="out/tiny_digits")
    arguments = parser.parse_args()

    sl.manual_seed(0)
    digits = load_digits()
    x, y = (digits.images / 16).astype(np.float32)[:, None], digits.target.astype(np.int64)
    x, y, held_x, held_y = x[:1400], y[:1400], x[1400:], y[1400:]
    old = np.flatnonzero(y < 5)
    net = sl.tiny.quantize(old_digits_learned(x[old], y[old], epochs=8), [sl.tensor(x[old])])

    def shares() -> str:
        return ", ".join(f"{share_right(net, held_x[which], held_y[which]):.1%} of {name}"
                         for name, which in (("0 to 4", held_y < 5), ("5 to 9", held_y >= 5)))

    print(f"before: {shares()}")
    step = sl.tiny.TrainStep(net, lr=0.02, answers=True)
    places = [place for place, _ in zip(stream(x, y, old[:KEPT]), range(arguments.steps))]
    samples = [(sl.tensor(x[p:p + 1]), sl.tensor(y[p:p + 1])) for p in places]
    step.compile(*samples[0])
    made = sl.tiny.export(step, arguments.out, name="digits", samples=samples[:arguments.known])

    right = []
    for place, sample in zip(places, samples):
        _, answer = step(*sample)
        right.append(int(answer.numpy().argmax()) == y[place])
        if len(right) % WINDOW == 0:
            window = right[-WINDOW:]
            print(f"step {len(right):5}: right before learning: {np.mean(window[::2]):6.1%} of new, {np.mean(window[1::2]):6.1%} of old")
    print(f"after: {shares()}")
    print(f"{arguments.out}: {made.memory + made.state} bytes of RAM, {made.constants} of weights that stay; make -C {arguments.out} check")


if __name__ == "__main__":
    main()
