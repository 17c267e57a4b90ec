#!/usr/bin/env python3
"""Training on small machines: what networks of integers learn, and the memory that it takes.

tiny.digits.*: the share of held-out digits that are right after a network of upright ones has learned turned ones, as integers
and as floats. Means of some seeds, of 797 digits each.

tiny.memory.*: bytes of RAM of a training step of a net like MCUNet for 128 x 128, beside all of it trained with gradients that
wait for the end of the backward pass; prints the table of schemes.
"""
from __future__ import annotations

import pathlib
import statistics
import sys
from functools import partial
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import sluice as sl  # noqa: E402
import tasks  # noqa: E402
from common import report, wanted  # noqa: E402
from sluice.tiny import TrainStep, quantize  # noqa: E402

SEEDS = 5
WAYS: dict[str, Any] = {
    "qas": partial(TrainStep),
    "qas_nearest": partial(TrainStep, rounding="nearest"),
    "sparse": partial(TrainStep, scheme=tasks.SPARSE),
    "bias_only": partial(TrainStep, scheme="bias-only"),
    "last_only": partial(TrainStep, scheme="last-only"),
    "without_qas": partial(TrainStep, qas=False),
}


def learned(train: tasks.Images, held: tasks.Images, seed: int, wanted_ways: list[str]) -> dict[str, float]:
    """The accuracy of each way; "float" and "before" beside those that are wanted."""
    net = tasks.upright(train, seed=seed)
    train, held = train.turned(), held.turned()
    start = {name: value.clone() for name, value in net.state_dict().items()}
    found = {"before": tasks.accuracy(net, held)}
    for way in wanted_ways:
        found[way] = 0.0
        # Without scaling no length of step is right: the best of some is shown.
        for lr in (0.02, 0.2, 2.0) if way == "without_qas" else (0.02,):
            net.load_state_dict(start)
            made = quantize(net, [sl.tensor(train.x[:256])])
            tasks.learn(made, train, WAYS[way], lr, epochs=8, seed=seed)
            found[way] = max(found[way], tasks.accuracy(made, held))
    net.load_state_dict(start)
    tasks.learn(net, train, tasks.FloatStep, lr=0.02, epochs=8, seed=seed)
    found["float"] = tasks.accuracy(net, held)
    return found


def digits() -> None:
    ways = [way for way in WAYS if wanted(f"tiny.digits.{way}")]
    if not ways:
        return
    train, held = tasks.digits()
    runs = [learned(train, held, seed, ways) for seed in range(SEEDS)]
    floats = statistics.mean(run["float"] for run in runs)
    for way in ways:
        values = [run[way] for run in runs]
        mean = statistics.mean(values)
        report(f"tiny.digits.{way}", mean, floats, "the same steps in floats", "share of digits that are right", SEEDS,
               (max(values) - min(values)) / 2 / mean, ratio=mean / floats, also={"before": statistics.mean(r["before"] for r in runs)})


def memory() -> None:
    if not wanted("tiny.memory."):
        return
    table = tasks.memory_table()
    print(table, file=sys.stderr)
    for row in table:
        name = row.scheme.replace(" ", "_")
        for order, ram in (("", row.late_ram), (".reordered", row.ram)):
            report(f"tiny.memory.{name}{order}", ram / 1024, table[0].late_ram / 1024, "everything trained, as an optimizer does it",
                   "KiB", 1, 0.0, also={"flash": row.flash})


if __name__ == "__main__":
    digits()
    memory()
