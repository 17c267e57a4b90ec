"""A network of 8-bit integers that learns, on the machine, how a pump sounds when it is well, and tells when it is not.

An autoencoder has learned one pump. It is built into another one, which turns faster: everything it hears there is strange. So each
step gives how badly the sound was reproduced, which is the alarm, and then learns from it. Sounds are made up: harmonics of the speed
at which a pump turns; a worn bearing adds a tone that is no harmonic, a broken blade moves power between harmonics, a leak adds noise.

Prints how well sounds of well and ill pumps are told apart (the area under the curve of hits over false alarms) before and after
learning, and writes the step to --out as C: `make -C OUT check` compares every bit, and `make -C OUT run-cortex-m4` in qemu.
"""

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt

import sluice as sl
import sluice.nn as nn
from sluice.nn import functional as F

Array = npt.NDArray[Any]
RATE, SAMPLES, BANDS = 4096, 1024, 64
FAULTS = ("bearing", "blade", "leak")


def sound(turns: float, fault: str | None, random: np.random.Generator) -> Array:
    """A quarter of a second of a pump that turns so often a second."""
    t = np.arange(SAMPLES) / RATE
    speed = turns * random.uniform(0.98, 1.02)
    levels = np.array([1, 0.7, 0.5, 0.35, 0.25, 0.2, 0.15]) * random.uniform(0.8, 1.2, 7)
    if fault == "blade":
        levels = levels * np.array([0.6, 1.4, 0.5, 1.6, 0.5, 1.8, 0.5])
    made: Array = sum(level * np.sin(2 * np.pi * (k + 1) * speed * t + random.uniform(0, 6.3)) for k, level in enumerate(levels))
    made = made + random.normal(0, 0.25 if fault == "leak" else 0.12, SAMPLES)
    if fault == "bearing":
        made = made + 0.15 * np.sin(2 * np.pi * speed * 5.43 * t) + 0.12 * np.sin(2 * np.pi * speed * 8.61 * t)
    return made


def spectrum(made: Array) -> Array:
    """Levels of bands in decibels, as 0 to 1."""
    power = np.abs(np.fft.rfft(made * np.hanning(SAMPLES)))[1:SAMPLES // 2 + 1].reshape(BANDS, -1).max(1)
    shown: Array = np.clip(np.log10(power + 1) / 2.5, 0, 1).astype(np.float32)
    return shown


def spectra(turns: float, count: int, seed: int, faults: tuple[str | None, ...] = (None,)) -> Array:
    random = np.random.default_rng(seed)
    return np.stack([spectrum(sound(turns, faults[i % len(faults)], random)) for i in range(count)])


def autoencoder() -> nn.Module:
    return nn.Sequential(nn.Linear(BANDS, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, BANDS))


class FloatStep(nn.Graph):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.Adam(net.parameters(), lr=0.003))

    def build(self, x: sl.Tensor) -> sl.Tensor:
        loss = F.mse_loss(self.net(x), x)
        loss.backward()
        return loss


def errors(net: Any, x: Array) -> Array:
    """How badly each spectrum is reproduced."""
    with sl.no_grad():
        return np.asarray(((net(sl.tensor(x)).numpy() - x) ** 2).mean(1))


def told_apart(net: Any, well: Array, ill: Array) -> float:
    """The share of pairs of a well and an ill pump in which the ill one has the larger error."""
    return float((errors(net, ill)[:, None] > errors(net, well)[None]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--known", type=int, default=20, help="steps that check.c compares")
    parser.add_argument("--out", default="out/tiny_anomaly")
    arguments = parser.parse_args()

    sl.manual_seed(0)
    first, other = 29.0, 41.0  # turns a second of the two pumps
    learned = spectra(first, 960, seed=0)
    net = autoencoder()
    step = FloatStep(net)
    for epoch in range(20):
        for chosen in np.split(np.random.default_rng(epoch).permutation(960), 60):
            step(sl.tensor(learned[chosen]))
    integers = sl.tiny.quantize(net, [sl.tensor(learned), sl.tensor(spectra(other, 64, seed=1))])
    well, ill = spectra(other, 300, seed=2), spectra(other, 300, seed=3, faults=FAULTS)
    at_home = told_apart(integers, spectra(first, 300, seed=4), spectra(first, 300, seed=5, faults=FAULTS))
    print(f"told apart: {at_home:.3f} at the pump it knows, {told_apart(integers, well, ill):.3f} at the other one")

    # A step's loss, of before it learns, is the alarm.
    learning = sl.tiny.TrainStep(integers, lr=0.3, loss=lambda made, x: F.mse_loss(made, x))
    heard = spectra(other, arguments.steps, seed=6)
    samples = [(sl.tensor(x[None]), sl.tensor(x[None])) for x in heard]
    learning.compile(*samples[0])
    made = sl.tiny.export(learning, arguments.out, name="pump", samples=samples[:arguments.known])
    alarms = np.array([learning(*sample).item() for sample in samples])
    tenth = max(1, len(alarms) // 10)
    print(f"mean error: {alarms[:tenth].mean():.5f} in the first {tenth} steps, {alarms[-tenth:].mean():.5f} in the last ones")
    print(f"told apart: {told_apart(integers, well, ill):.3f} after learning")
    print(f"{arguments.out}: {made.memory + made.state} bytes of RAM, {made.constants} of weights that stay; make -C {arguments.out} check")


if __name__ == "__main__":
    main()
