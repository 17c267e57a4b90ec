"""A network of 8-bit integers that hears keywords: for a microcontroller with a microphone and no floats.

Words are made up, since no recordings are shipped: a speaker's voice is harmonics of a pitch, of which a vowel's two formants let some
through, and a word is a glide between vowels. The network sees a picture of 16 bands by 16 moments, of logarithms of energies.
It is trained in floats, made integers whose sums are scaled by integers alone, and written to --out as C: `make -C OUT check` compares
every bit on this machine, and `make -C OUT run-cortex-m4` in qemu.
"""

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt

import sluice as sl
import sluice.nn as nn
from sluice.nn import functional as F

Array = npt.NDArray[Any]
RATE, SECONDS, FRAMES, BANDS, WINDOW = 8000, 0.5, 16, 16, 512
PART = 80  # samples in which a formant stays
VOWELS = {"a": (800, 1200), "e": (500, 1900), "i": (300, 2300), "o": (450, 800), "u": (320, 650)}  # formants in Hz
WORDS = ("ai", "ou", "iu", "ea")
CLASSES = (*WORDS, "unknown", "silence")


def spoken(word: str, random: np.random.Generator) -> Array:
    """Half a second of a voice that says two vowels."""
    t = np.arange(int(RATE * SECONDS)) / RATE
    begin, length = random.uniform(0.02, 0.12), random.uniform(0.26, 0.36)
    along = np.clip((t - begin) / length, 0, 1)
    glide = 1 / (1 + np.exp(-12 * (along[::PART] - 0.5)))
    loud = np.where((t > begin) & (t < begin + length), np.sin(np.pi * along) ** 0.5, 0)
    pitch, throat = random.uniform(90, 240), random.uniform(0.9, 1.12)
    first, second = (throat * ((1 - glide) * VOWELS[word[0]][k] + glide * VOWELS[word[1]][k]) for k in (0, 1))
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.05 * np.sin(2 * np.pi * random.uniform(2, 5) * t))) / RATE
    voice, turn = np.zeros_like(t), np.exp(1j * phase)
    wave = np.ones_like(turn)
    for harmonic in range(1, int(RATE / 2 / pitch)):
        wave *= turn
        through = sum(weight / (1 + ((harmonic * pitch - formant) / 90) ** 2) for weight, formant in ((1, first), (0.6, second)))
        voice += np.repeat(through, PART) * wave.imag
    return voice * loud


def picture(sound: Array) -> Array:
    """Energies of bands that are as wide as ears hear them, in decibels of the loudest, as 0 to 1."""
    edges = np.round(np.geomspace(150, RATE / 2, BANDS + 1) / RATE * WINDOW).astype(int)
    step = (len(sound) - WINDOW) // (FRAMES - 1)
    frames = np.stack([sound[i * step:i * step + WINDOW] for i in range(FRAMES)]) * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames)) ** 2
    energy = np.stack([power[:, low:max(high, low + 1)].mean(1) for low, high in zip(edges, edges[1:])])
    shown: Array = np.clip(1 + np.log10(energy / max(energy.max(), 1e-3) + 1e-4) / 4, 0, 1)
    return shown


def examples(count: int, seed: int) -> tuple[Array, Array]:
    random, others = np.random.default_rng(seed), [a + b for a in VOWELS for b in VOWELS if a + b not in WORDS]
    x, y = [], []
    for i in range(count):
        name = CLASSES[i % len(CLASSES)]
        word = str(random.choice(others)) if name == "unknown" else name
        sound = np.zeros(int(RATE * SECONDS)) if name == "silence" else spoken(word, random)
        noise = random.normal(0, 1, len(sound)) * (0.02 if name == "silence" else np.abs(sound).max() * 10 ** random.uniform(-2.2, -1.2))
        x.append(picture(sound + noise))
        y.append(i % len(CLASSES))
    return np.stack(x)[:, None].astype(np.float32), np.array(y)


def network() -> nn.Module:
    def layer(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False), nn.BatchNorm2d(inputs), nn.ReLU(),
                nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *layer(16, 24, 1), *layer(24, 32, 2),
                         nn.Flatten(), nn.Linear(32 * 16, len(CLASSES)))


class Training(nn.Graph):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.Adam(net.parameters(), lr=0.003))

    def build(self, x: sl.Tensor, y: sl.Tensor) -> sl.Tensor:
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        return loss


class Listening(nn.Graph):
    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def build(self, x: sl.Tensor) -> Any:
        return self.net(x)


def share_right(net: Any, x: Array, y: Array) -> float:
    with sl.no_grad():
        return float((net(sl.tensor(x)).numpy().argmax(1) == y).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sounds", type=int, default=1800)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--known", type=int, default=24, help="sounds whose answers check.c compares")
    parser.add_argument("--out", default="out/tiny_keywords")
    arguments = parser.parse_args()

    sl.manual_seed(0)
    x, y = examples(arguments.sounds, seed=0)
    held_x, held_y = examples(600, seed=1)
    net = network()
    step = Training(net)
    for epoch in range(arguments.epochs):
        for chosen in np.split(np.random.default_rng(epoch).permutation(len(y))[:len(y) // 30 * 30], len(y) // 30):
            loss = step(sl.tensor(x[chosen]), sl.tensor(y[chosen]))
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    net.eval()
    integers = sl.tiny.quantize(net, [sl.tensor(x[:300])], requantize="fixed")
    print(f"right of sounds not heard before: {share_right(net, held_x, held_y):.1%} in floats, "
          f"{share_right(integers, held_x, held_y):.1%} in integers")
    listening = Listening(integers)
    samples = [(sl.tensor(held_x[i:i + 1]),) for i in range(arguments.known)]
    listening.compile(*samples[0])
    made = sl.tiny.export(listening, arguments.out, name="keywords", samples=samples)
    print(f"{arguments.out}: {made.memory + made.state} bytes of RAM, {made.constants} of weights; make -C {arguments.out} check")


if __name__ == "__main__":
    main()
