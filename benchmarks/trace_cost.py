"""trace.PLAN: how much longer steps take while a run is recorded to a file: training the digits net, training ResNet-18, and training
a net behind a pipeline that decodes photographs. Blocks of steps with and without a recording follow each other in pairs."""
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
from common import report, spread, wanted
from images import photographs
from input_pipelines import folder_of
from train import sluice_graph

AIM = 0.01  # the upper end of the interval
# Pairs of blocks, and seconds of a block. A file takes what was recorded every 200 ms, and at the end of a block.
PLANS = {"digits": (200, 0.3), "resnet18": (60, 0.6), "input": (60, 0.6)}


def resnet18(nn):
    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.residual = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                                          nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
            self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            return (self.residual(x) + self.shortcut(x)).relu()

    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [Block(a, b, 2 if b > a else 1) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def training(net, batch=None):
    """A graph that trains `net` on its inputs, or on those of a pipeline."""
    import sluice as sl

    class Training(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            if batch is not None:
                self.batch = batch
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.01, momentum=0.9))

        def build(self, *inputs):
            x, y = inputs if batch is None else self.batch()
            loss = sl.nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            return loss

    return Training()


def compiled(name):
    """A graph that has run, and its inputs."""
    import sluice as sl
    from sluice import data
    sl.manual_seed(0)
    if name == "digits":
        return sluice_graph("digits")
    if name == "resnet18":
        graph, inputs = training(resnet18(sl.nn)), (sl.randn(8, 3, 96, 96), sl.randint(0, 1000, (8,)))
    else:
        files = photographs()
        root = folder_of(files, 4)
        for i in range(len(files)):
            os.link(f"{root.name}/files/{i}.jpg", f"{root.name}/train/{i % 4:04}/{i}.jpg")
        pipeline = (data.images(f"{root.name}/train").shuffle().repeat().batch(16)
                    .decode((112, 112), crop=data.random_resized_crop(), flip=0.5).normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        nn = sl.nn
        net = nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                            nn.Linear(32, 4))
        graph, inputs = training(net, pipeline), ()
        graph.files = root  # stay as long as the graph
    graph(*inputs)
    return graph, inputs


def cost(name, pairs, seconds, folder):
    """How many steps a block had, and for each pair the time that it took with a recording over that without, less 1."""
    graph, inputs = compiled(name)

    def block(steps, path=None):
        with contextlib.ExitStack() as recording:
            if path is not None:
                recording.enter_context(graph.record_trace(path))
            begin = time.perf_counter()
            for _ in range(steps):
                loss = graph(*inputs)
            loss.item()
            graph.synchronize()
            recording.close()  # the file is whole
            return (time.perf_counter() - begin) / steps

    block(3)
    steps = max(1, round(seconds / block(max(3, round(seconds / block(3) / 4)))))
    block(steps)
    ratios = []
    for pair in range(pairs):
        times = {}
        for on in (pair % 2 == 0, pair % 2 == 1):
            times[on] = block(steps, folder / "run.slt" if on else None)
        ratios.append(times[True] / times[False] - 1)
    return steps, ratios


def confidence(values, samples=4000):
    """The 95 % interval of the median, by resampling."""
    random = np.random.default_rng(0)
    medians = np.median(random.choice(values, (samples, len(values))), axis=1)
    return [float(x) for x in np.quantile(medians, (0.025, 0.975))]


if __name__ == "__main__":
    few = int(os.environ.get("PAIRS", 0))  # to try the program out
    for plan, (pairs, seconds) in PLANS.items():
        if not wanted(f"trace.{plan}"):
            continue
        with tempfile.TemporaryDirectory() as work:
            steps, ratios = cost(plan, few or pairs, seconds, pathlib.Path(work))
        low, high = confidence(ratios)
        print(f"trace.{plan}: {statistics.median(ratios):+.2%} of an unrecorded step; 95 % interval {low:+.2%} to {high:+.2%}; aim: at most {AIM:.0%}",
              file=sys.stderr)
        report(f"trace.{plan}", statistics.median(ratios), None, "none: the aim, 0.01 at the upper end of the interval", "of an unrecorded step, more",
               len(ratios), spread([1 + r for r in ratios]), interval=[low, high], steps=steps)
