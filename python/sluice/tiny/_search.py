"""Which tensors are worth changing under a budget of memory."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Sequence

from sluice import _C
from sluice._base.grad_mode import no_grad
from sluice.nn import functional as F
from sluice.tiny._export import bytes_of
from sluice.tiny._int8 import layers_of
from sluice.tiny._quantize import quantize
from sluice.tiny._table import ledger
from sluice.tiny._training import Scheme, TrainStep


@dataclass(frozen=True)
class Contribution:
    """What one tensor gives beside the last layer. ratio: of the layer's weight, 0: its bias. gain: of the score. bytes: of RAM."""

    layer: str
    ratio: float
    gain: float
    bytes: int


@dataclass(frozen=True)
class Trial:
    scheme: Scheme
    score: float
    ram: int


@dataclass(frozen=True)
class Found:
    """scheme: the best that fits, with its score and bytes of RAM. contributions: of tensors, the greatest gain first. trials: the
    schemes between which the score has decided."""

    scheme: Scheme
    score: float
    ram: int
    contributions: tuple[Contribution, ...]
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        lines = [f"{'layer':<24}{'changes':>10}{'gain':>10}{'RAM':>10}"]
        for c in self.contributions:
            lines.append(f"{c.layer:<24}{f'{c.ratio:g}' if c.ratio else 'bias':>10}{c.gain:>+10.4f}{c.bytes:>+10}")
        return "\n".join([*lines, f"score {self.score:.4f} in {self.ram} bytes of RAM with", str(self.scheme)])


def right(result: Any, target: Any) -> float:
    """The share of a batch whose largest result is the target's."""
    return float((result.argmax(1) == target).to(_C.float32).mean().item())


def _with(scheme: Scheme, part: Contribution) -> Scheme:
    if not part.ratio:
        return Scheme(dict(scheme.weights), scheme.biases | {part.layer})
    return Scheme({**scheme.weights, part.layer: part.ratio}, scheme.biases)


class _Search:
    def __init__(self, net: Any, train: Sequence[Any], held: Sequence[Any], example: Any, budget: int, lr: float, loss: Any,
                 score: Any, seed: int) -> None:
        self.net, self.train, self.held, self.example, self.budget = net, train, held, example, budget
        self.lr, self.loss, self.measure, self.seed = lr, loss, score, seed
        self.layers = layers_of(net)
        self.known: dict[str, int] = {}
        self.scores: dict[str, float] = {}

    def ram(self, scheme: Scheme) -> int:
        key = str(scheme)
        if key not in self.known:
            made = ledger(copy.deepcopy(self.net), self.example, scheme)
            self.known[key] = made.memory + made.state
        return self.known[key]

    def fits(self, scheme: Scheme) -> bool:
        return self.ram(scheme) <= self.budget

    def score(self, scheme: Scheme) -> float:
        """After the training batches, from the same weights each time."""
        key = str(scheme)
        if key not in self.scores:
            net = copy.deepcopy(self.net)
            step = TrainStep(net, lr=self.lr, scheme=scheme, loss=self.loss, seed=self.seed)
            for batch in self.train:
                step(*batch)
            with no_grad():
                found = [self.measure(net(x), target) for x, target in self.held]
            self.scores[key] = sum(found) / len(found)
        return self.scores[key]

    def contributions(self, base: Scheme, ratios: Sequence[float]) -> list[Contribution]:
        """Of each tensor that fits beside the last layer."""
        found = []
        for name, layer in list(self.layers.items())[:-1]:
            columns = layer.whole().shape[1]
            for ratio in (0.0, *(r for r in ratios if columns > 1 or r == 1)):
                scheme = _with(base, Contribution(name, ratio, 0.0, 0))
                if self.fits(scheme):
                    found.append(Contribution(name, ratio, self.score(scheme) - self.score(base), self.ram(scheme) - self.ram(base)))
        return sorted(found, key=lambda c: -c.gain)

    def filled(self, base: Scheme, order: list[Contribution]) -> Scheme:
        """What fits, tensor by tensor; of one weight the first ratio that does."""
        scheme = base
        for part in order:
            if part.gain > 0 and (not part.ratio or part.layer not in scheme.weights):
                larger = _with(scheme, part)
                scheme = larger if self.fits(larger) else scheme
        return scheme

    def last_layers(self) -> list[Scheme]:
        names, found = list(self.layers), []
        for k in range(1, len(names) + 1):
            scheme = Scheme(dict.fromkeys(names[-k:], 1.0), frozenset(names[-k:]))
            if not self.fits(scheme):
                break
            found.append(scheme)
        return found


def search(model: Any, data: Sequence[Any], budget: Any, *, held: Sequence[Any] | None = None, example: Any = None, lr: float = 0.01,
           ratios: Sequence[float] = (0.125, 0.25, 0.5, 1.0), loss: Any = F.cross_entropy, score: Any = right, seed: int = 0) -> Found:
    """The scheme that learns the most of `data` within `budget` bytes of RAM, by contribution analysis (Lin et al. 2022).

    For each bias, and each weight at some ratios, a network learns with that and the last layer alone; its gain is by how much
    the score is above the last layer's. Schemes are then filled with what gives the most, and with what gives the most for a
    byte, as far as the budget goes, and the best is chosen by its score among these, and among the last layers as far as they fit.
    All bytes are those that export() would need, found without computing a step.

    model: as quantize() takes it. data: batches (x, target), which train once each, in order, and calibrate. held: batches that
    measure; None: the last fifth of `data`, which does not train then. example: a step as the machine takes it, often of one
    picture; None: the first of `data`. budget: a number of bytes, or a text as "100KB", of values of a step and of what changes.
    score: of a result and a target, above where it is better.
    """
    limit = bytes_of("search: budget", budget)
    if held is None:
        cut = len(data) * 4 // 5
        data, held = data[:cut], data[cut:]
    if not data or not held:
        raise _C.ValueError(f"search: {len(data)} batches train and {len(held)} measure; both need one at least")
    for ratio in ratios:
        if not 0 < ratio <= 1:
            raise _C.ValueError(f"search: ratio {ratio!r}; must be above 0, and 1 at most")
    net = quantize(model, [x for x, _ in data])
    at = _Search(net, data, held, example if example is not None else data[0], limit, lr, loss, score, seed)
    base = Scheme.of(net, "last-only")
    if not at.fits(base):
        raise MemoryError(f"search: budget of {limit} bytes: the last layer alone needs {at.ram(base)}; give more, or a smaller network")
    gains = at.contributions(base, ratios)
    by_byte = sorted(gains, key=lambda c: -c.gain / max(c.bytes, 1))
    schemes = [at.filled(base, gains), at.filled(base, by_byte), *at.last_layers()]
    trials = {str(scheme): Trial(scheme, at.score(scheme), at.ram(scheme)) for scheme in schemes}
    best = max(trials.values(), key=lambda t: (t.score, -t.ram))
    return Found(best.scheme, best.score, best.ram, tuple(gains), tuple(trials.values()))
