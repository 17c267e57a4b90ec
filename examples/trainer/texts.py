"""Texts of licences by characters, a language model of them, and a classifier that says which of them a passage is from; for language.yaml,
fine_tuning.yaml and text_classification.yaml."""

import pathlib
import tempfile
from typing import Any, Sequence

import numpy as np

import sluice as sl
import sluice.distributed.checkpoint as dcp
from sluice import data, nn

TEXTS = pathlib.Path("/usr/share/common-licenses")
LETTERS = 96  # the printable ones of ASCII, and one for all others
WIDTH = 48


def characters(name: str) -> Any:
    ids = np.frombuffer((TEXTS / name).read_text().encode("ascii", "replace"), np.uint8).astype(np.int64) - 32
    return np.where((ids >= 0) & (ids < LETTERS - 1), ids, LETTERS - 1)


def passages(names: Sequence[str], part: str, seed: int = 0, every: int = 16) -> Any:
    """(characters, number of the text): passages of "train", which overlap, shuffled; or of "test", the last fifth of each text."""
    rows, classes = [], []
    for number, name in enumerate(names):
        ids = characters(name)
        cut = len(ids) * 4 // 5
        own = ids[:cut] if part == "train" else ids[cut:]
        starts = range(0, len(own) - WIDTH, every if part == "train" else WIDTH)
        rows += [own[start:start + WIDTH] for start in starts]
        classes += [number] * len(starts)
    found = data.arrays(np.stack(rows), np.array(classes), seed=seed)
    return found.shuffle() if part == "train" else found


def following(name: str, part: str, seed: int = 0, every: int = 16) -> Any:
    """(characters, the ones behind each of them)."""
    ids = characters(name)
    cut = len(ids) * 4 // 5
    own = ids[:cut] if part == "train" else ids[cut:]
    rows = np.stack([own[start:start + WIDTH + 1] for start in range(0, len(own) - WIDTH - 1, every)])
    found = data.arrays(np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:]), seed=seed)
    return found.shuffle() if part == "train" else found


class Reader(nn.Module):
    """Characters (N, T) to what is known at each of them (N, T, width), of those ahead of it: convolutions that look back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2 * 2**i, dilation=2**i) for i in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))

    def forward(self, ids: sl.Tensor) -> sl.Tensor:
        x: sl.Tensor = self.letters(ids)
        for layer, norm in zip(self.layers, self.norms):
            x = x + nn.functional.gelu(layer(norm(x).transpose(1, 2))[..., :ids.shape[1]]).transpose(1, 2)
        return x


class Language(nn.Module):
    """(N, T) to logits of the next character (N, T, LETTERS)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.reader, self.head = Reader(width), nn.Linear(width, LETTERS)

    def forward(self, ids: sl.Tensor) -> sl.Tensor:
        logits: sl.Tensor = self.head(self.reader(ids))
        return logits


class Classifier(nn.Module):
    """(N, T) to logits of the texts (N, texts)."""

    def __init__(self, texts: int, width: int = 64) -> None:
        super().__init__()
        self.reader, self.head = Reader(width), nn.Linear(width, texts)

    def forward(self, ids: sl.Tensor) -> sl.Tensor:
        logits: sl.Tensor = self.head(self.reader(ids).mean(1))
        return logits


def tuned(texts: int, checkpoints: str, width: int = 64) -> Classifier:
    """A classifier that reads as the language model of the newest checkpoint does; of its reader only the last layer learns."""
    newest = dcp.Checkpoints(checkpoints).latest()
    if newest is None:
        raise ValueError(f"tuned: {checkpoints} has no checkpoint; train language.yaml first")
    with tempfile.TemporaryDirectory() as folder:
        dcp.export(dcp.Checkpoints(checkpoints).path(newest), f"{folder}/whole")
        known = sl.load(f"{folder}/whole/model.safetensors")
    net = Classifier(texts, width)
    net.reader.load_state_dict({name.removeprefix("reader."): t for name, t in known.items() if name.startswith("reader.")})
    for name, p in net.reader.named_parameters():
        p.requires_grad_(name.startswith(("layers.3.", "norms.3.")))
    return net


def next_character(logits: sl.Tensor, targets: sl.Tensor) -> sl.Tensor:
    loss: sl.Tensor = nn.functional.cross_entropy(logits.reshape(-1, LETTERS), targets.reshape(-1))
    return loss
