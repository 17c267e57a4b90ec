#!/usr/bin/env python3
"""Training on small machines: what networks of integers learn, and the memory that it takes.

tiny.digits.*: the share of held-out digits that are right after a network of upright ones has learned turned ones, as integers
and as floats. Means of some seeds, of 797 digits each.

tiny.memory.*: bytes of RAM of a training step of a net like MCUNet for 128 x 128, beside all of it trained with gradients that
wait for the end of the backward pass; prints the table of schemes.

tiny.instructions.*: instructions of an answer, and of a step of training, of the network of digits on a Cortex-M4 in qemu, in floats and
as integers, with products of integers in pairs (SMLAD) and one by one.

tiny.step.*: microseconds of a step of training of the network of digits, one picture at a time, as a C program on one core beside torch
on one thread, and the memory that it takes: `also` has the bytes of its tensors, and KiB of both processes at their largest.
tiny.step.WAY.engine: the same beside the engine, which runs the same kernels one by one (device c:0).

tiny.answer.int8_fixed: microseconds of an answer of a network of integers alone as a C program, beside TFLite-Micro's interpreter,
which gives the same bits. It takes the package tflite-micro (requirements-bench.txt).
"""
from __future__ import annotations

import copy
import pathlib
import statistics
import sys
import tempfile
import time
import warnings
from functools import partial
from typing import Any, Callable

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import sluice as sl  # noqa: E402
import instructions  # noqa: E402
import micro  # noqa: E402
import speed  # noqa: E402
import tasks  # noqa: E402
from common import report, wanted  # noqa: E402
from sluice.tiny import TrainStep, quantize  # noqa: E402

SEEDS, TIMES = 5, 5
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


class Answer(sl.nn.Graph):
    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def build(self, x: Any) -> Any:
        return self.net(x)


def count_instructions() -> None:
    if not wanted("tiny.instructions.") or not instructions.available():
        return
    train, _ = tasks.digits()
    x, y = sl.tensor(train.x[:1]), sl.tensor(train.y[:1])
    sl.manual_seed(0)
    net = tasks.network()
    start = {name: value.clone() for name, value in net.state_dict().items()}

    def integers(how: str) -> Any:
        net.load_state_dict(start)
        return quantize(net, [sl.tensor(train.x[:64])], requantize=how)

    def of(graph: Any, *sample: Any, options: str = "-O2") -> float:
        graph.compile(*sample)
        with tempfile.TemporaryDirectory() as folder:
            sl.tiny.export(graph, folder, name="net", samples=[sample] * 2, ram="4MB", flash="4MB")
            return instructions.of_a_step(folder, "net", options=options) / 1e6

    plain = "-O2 -DSLUICE_PLAIN"
    answers = {"float": of(Answer(net), x)}
    for how in ("float", "fixed"):
        made = integers(how)
        answers[f"int8_{how}"], answers[f"int8_{how}.plain"] = of(Answer(made), x), of(Answer(made), x, options=plain)
    steps = {"float": of(tasks.FloatStep(net, lr=0.1), x, y)}
    for name, options in (("int8", "-O2"), ("int8.plain", plain)):
        steps[name] = of(TrainStep(integers("float"), lr=0.01), x, y, options=options)
    for kind, found in (("answer", answers), ("step", steps)):
        for name, value in found.items():
            report(f"tiny.instructions.{kind}.{name}", value, found["float"], "the same in floats", "million instructions", 2, 0.0)


def engine_step(graph: Any, sample: tuple[Any, ...], folder: str) -> Callable[[int], float]:
    """Nanoseconds of a step in the engine, whose kernels are those of the C program."""
    sl.save(graph, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that the plan is made anew for c:0
        loaded = sl.load_graph(folder, device="c:0")

    def timed(count: int) -> float:
        loaded(*sample).item()
        begin = time.perf_counter_ns()
        for _ in range(count):
            loaded(*sample).item()
        return (time.perf_counter_ns() - begin) / count

    return timed


def spread(values: list[float]) -> float:
    return (max(values) - min(values)) / 2 / statistics.median(values)


def time_steps() -> None:
    if not wanted("tiny.step."):
        return
    train, _ = tasks.digits()
    x, y = sl.tensor(train.x[:1]), sl.tensor(train.y[:1])
    sl.manual_seed(0)
    net = tasks.network()
    made = quantize(net, [sl.tensor(train.x[:64])])
    ways = {"float": tasks.FloatStep(net, lr=0.01), "int8": TrainStep(made, lr=0.01), "sparse": TrainStep(copy.deepcopy(made), lr=0.01,
                                                                                                      scheme=tasks.SPARSE)}
    with tempfile.TemporaryDirectory() as folder:
        programs, engines, bytes_of = {}, {}, {}
        for name, graph in ways.items():
            graph.compile(x, y)
            exported = sl.tiny.export(graph, f"{folder}/{name}", name="net", samples=[(x, y)], ram="4MB", flash="4MB")
            programs[name] = speed.build(exported.directory, "net")
            engines[name] = engine_step(graph, (x, y), f"{folder}/{name}.bundle")
            bytes_of[name] = exported.memory + exported.state
        rounds = [({name: speed.of_c(program, 300) for name, program in programs.items()}, speed.of_torch(300),
                   {name: timed(300) for name, timed in engines.items()}) for _ in range(TIMES)]
    torch_ns = statistics.median(theirs[0] for _, theirs, _ in rounds)
    torch_kib = statistics.median(theirs[1] for _, theirs, _ in rounds)
    for name in ways:
        values = [ours[name][0] for ours, _, _ in rounds]
        median = statistics.median(values)
        report(f"tiny.step.{name}", median / 1e3, torch_ns / 1e3, "torch, one thread", "us", TIMES, spread(values),
               also={"bytes": bytes_of[name], "process_kib": statistics.median(ours[name][1] for ours, _, _ in rounds), "torch_kib": torch_kib,
                     "torch_to_bytes": torch_kib * 1024 / bytes_of[name]})
        report(f"tiny.step.{name}.engine", median / 1e3, statistics.median(found[name] for _, _, found in rounds) / 1e3,
               "the engine on c:0, kernel by kernel", "us", TIMES, spread(values))


def answer_as_micro() -> None:
    if not wanted("tiny.answer.") or not micro.available():
        return
    ours, theirs = zip(*micro.rounds(TIMES))
    report("tiny.answer.int8_fixed", statistics.median(ours) / 1e3, statistics.median(theirs) / 1e3, "TFLite-Micro's interpreter", "us", TIMES,
           spread(list(ours)))


if __name__ == "__main__":
    digits()
    memory()
    count_instructions()
    time_steps()
    answer_as_micro()
