"""Training steps of networks of integers, and which of their tensors change."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Iterable

from sluice import _C
from sluice._graph.graph import Graph
from sluice._tensor import creation
from sluice.nn import functional as F
from sluice.tiny._int8 import Training, layers_of
from sluice.tiny._steps import ROUNDINGS

PRESETS = ("full", "last-only", "bias-only")


@dataclass(frozen=True)
class Scheme:
    """Which tensors a step changes: the share of input channels by layer, and layers whose biases change.

    As text, a line each, in any order; what follows # is a note:

        weights features.3: 0.5        # half of the input channels of this layer's weight
        biases: features.3 head        # by name

    Or in the words of MIT's tiny-training, where layers are counted from 0:

        n_bias_update: 2               # biases of the last two layers
        manual_weight_idx: 3-4         # weights of these layers,
        weight_update_ratio: 0.5-1     # and how much of each
    """

    weights: dict[str, float] = field(default_factory=dict)
    biases: frozenset[str] = frozenset()

    @staticmethod
    def of(net: Any, scheme: Any) -> Scheme:
        """scheme: a Scheme, "full", "last-only", "bias-only" (with the last layer's weight), the path of a file, or its text."""
        names = list(layers_of(net))
        if isinstance(scheme, Scheme):
            made = scheme
        elif scheme in (None, "full"):
            made = Scheme(dict.fromkeys(names, 1.0), frozenset(names))
        elif scheme == "last-only":
            made = Scheme({names[-1]: 1.0}, frozenset(names[-1:]))
        elif scheme == "bias-only":
            made = Scheme({names[-1]: 1.0}, frozenset(names))
        else:
            where, text = "scheme", os.fsdecode(scheme)
            if "\n" not in text and ":" not in text:
                where = text
                if not os.path.exists(text):
                    raise _C.ValueError(f"scheme: {text!r}: no such file; must be one, or one of {', '.join(PRESETS)}")
                with open(text) as file:
                    text = file.read()
            made = _parse(where, text, names)
        _known("scheme", made.weights.keys() | made.biases, names)
        for name, ratio in made.weights.items():
            _check_ratio(f"scheme: {name}", ratio)
        return made

    def apply(self, net: Any) -> None:
        for name, layer in layers_of(net).items():
            ratio = self.weights.get(name, 0.0)
            if 0 < ratio < 1 and layer.whole().shape[1] == 1:
                raise _C.ValueError(f"scheme: {name}: ratio {ratio}; its weight has one input channel, so it must be 1")
            layer.change(ratio, name in self.biases)

    def __str__(self) -> str:
        """Lines that of() reads."""
        lines = [f"weights {name}: {ratio!r}\n" for name, ratio in self.weights.items()]
        return "".join(lines) + (f"biases: {' '.join(sorted(self.biases))}\n" if self.biases else "")


def _check_ratio(where: str, ratio: Any) -> float:
    try:
        value = float(ratio)
    except (TypeError, ValueError):
        value = -1.0
    if not 0 < value <= 1:
        raise _C.ValueError(f"{where}: ratio {ratio!r}; must be above 0, and 1 at most")
    return value


def _known(where: str, layers: Iterable[str], names: list[str]) -> list[str]:
    unknown = sorted({*layers} - {*names})
    if unknown:
        raise _C.ValueError(f"{where}: unknown layers {unknown}; the network has {names}")
    return list(layers)


def _parse(where: str, text: str, names: list[str]) -> Scheme:
    weights: dict[str, float] = {}
    biases: set[str] = set()
    index: tuple[str, list[int]] | None = None
    ratios: tuple[str, list[float]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        line, at = line.partition("#")[0].strip(), f"{where}:{number}"
        if not line:
            continue
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not value:
            raise _C.ValueError(f"{at}: {line!r}; must be a word, a colon, and values")
        if key == "biases":
            biases.update(_known(at, value.split(), names))
        elif key == "n_bias_update":
            if not value.isdigit() or not 0 <= int(value) <= len(names):
                raise _C.ValueError(f"{at}: {value!r}; must be a number of layers, of which there are {len(names)}")
            biases.update(names[len(names) - int(value):])
        elif key == "manual_weight_idx":
            words = re.split(r"[-,\s]+", value)
            if not all(word.isdigit() and int(word) < len(names) for word in words):
                raise _C.ValueError(f"{at}: {value!r}; must be numbers of layers below {len(names)}, as in 3-4-6")
            index = at, [int(word) for word in words]
        elif key == "weight_update_ratio":
            ratios = at, [_check_ratio(at, word) for word in re.split(r"[-,\s]+", value)]
        elif key.startswith("weights "):
            weights[_known(at, [key.removeprefix("weights ").strip()], names)[0]] = _check_ratio(at, value)
        else:
            raise _C.ValueError(f"{at}: {key!r}; must be weights LAYER, biases, n_bias_update, manual_weight_idx or "
                                "weight_update_ratio")
    if index is not None:
        shares = ratios[1] if ratios is not None else [1.0]
        shares = shares * len(index[1]) if len(shares) == 1 else shares
        if len(shares) != len(index[1]):
            raise _C.ValueError(f"{index[0]}: {len(index[1])} layers and {len(shares)} ratios; give one ratio, or one for each")
        weights.update({names[i]: share for i, share in zip(index[1], shares)})
    elif ratios is not None:
        raise _C.ValueError(f"{ratios[0]}: weight_update_ratio without manual_weight_idx; say which layers it is for")
    return Scheme(weights, frozenset(biases))


class TrainStep(Graph):
    """A step of training as a graph: step(x, target) changes the network and gives the loss.

    net: of quantize(). lr: in units of the real weights.
    qas: quantisation-aware scaling: gradients of integers are divided by the square of their scale, channel by channel, so that a
        step changes the weight that they stand for as it would a float one (Lin et al. 2022). Without it, steps are too short by
        the square of the scale, which is about 1/10,000.
    rounding: "stochastic", by a hash of place and step that is the same on every machine; "nearest"; or "carry", which keeps what the
        nearest integer leaves, in 256ths, for the next step: a byte more for each weight that changes.
    accumulate: the number of steps whose gradients add up before weights change, in the last of them, by the mean: batches larger
        than the machine has room for. It takes a float for each weight that changes.
    scheme: which tensors change (Scheme.of); None: all.
    loss: of the network's result and the target.
    late: weights change behind the whole backward pass, as those of an optimizer do, and not as soon as their gradient is known.
        Losses are the same; it takes more memory, which memory_table() compares.
    answers: a step gives (loss, the network's result), which it has before it learns: a machine learns while it answers.
    """

    def __init__(self, net: Any, *, lr: float, qas: bool = True, rounding: str = "stochastic", seed: int = 0, scheme: Any = None,
                 loss: Any = F.cross_entropy, late: bool = False, answers: bool = False, accumulate: int = 1) -> None:
        super().__init__()
        layers = layers_of(net)
        if rounding not in ROUNDINGS:
            raise _C.ValueError(f'TrainStep: rounding is "{rounding}"; must be {", ".join(ROUNDINGS[:-1])} or {ROUNDINGS[-1]}')
        if not isinstance(accumulate, int) or accumulate < 1:
            raise _C.ValueError(f"TrainStep: accumulate is {accumulate!r}; must be a number of steps, 1 or more")
        if not layers:
            raise _C.ValueError("TrainStep: the network has no layers of integers; make it with tiny.quantize()")
        self.net, self.loss, self.answers, self.scheme = net, loss, answers, Scheme.of(net, scheme)
        self.scheme.apply(net)
        net.register_buffer("step", creation.tensor(0, dtype=_C.int64))
        rate = creation.tensor(float(lr))
        for i, layer in enumerate(layers.values()):
            layer.train_as(Training(rate, net.step, qas, rounding, seed + i, accumulate, late))

    def build(self, x: Any, target: Any) -> Any:
        result = self.net(x)
        loss = self.loss(result, target)
        loss.backward()
        for layer in reversed(layers_of(self.net).values()):
            layer.step()
        self.net.step.copy_(self.net.step + 1)
        return (loss, result) if self.answers else loss
