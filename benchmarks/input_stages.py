#!/usr/bin/env python3
"""data.stages.*: JPEG files and a ResNet as stages of one plan: with a core each and slots that the compiler has chosen, against one slot;
with cores that it has chosen, against the same kernels as one list on all cores; and whether advice comes true when it is followed."""
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parent / "gpu"))
from common import Side, measure, report, spread, traced_kernels, wanted
from images import MEAN, STD, photographs
from input_pipelines import folder_of

RUNG, SIDES = 16, (16, 24, 32, 48, 64, 96, 104, 112, 120, 128, 160, 192, 256)  # images of a step; pixels of a side that are tried


def files_of(count: int) -> tempfile.TemporaryDirectory:
    files = photographs()[:count]
    root = folder_of(files, 2)
    for i in range(count):
        os.link(f"{root.name}/files/{i}.jpg", f"{root.name}/train/{i % 2:04}/{i}.jpg")
    return root


def attack(side: int, apart: bool = True, cores: int = 0, slots: int = 0, costs: str = ""):
    """A graph: JPEG files -> a ResNet -> images that are moved along its gradient, so that they are read until the end of a step.

    apart: the stages are on streams of their own; else all is one list. cores: of each stream; 0: the compiler says. slots: between
    the stages; 0: the compiler says, too. costs: a file of what kernels have taken.
    """
    import contextlib

    import sluice as sl
    from nets import resnet50
    from sluice import data
    root = files_of(200)

    class Attack(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.root, self.net = root, resnet50(sl, (1, 1, 1, 1), 8, 10).eval()
            self.input = data.images(f"{root.name}/train").repeat().batch(RUNG).decode(side).normalize(MEAN, STD)
            if cores:
                self.config.set_cores(cores)
            if costs:
                self.config.set_cost_file(costs)
            self.config.enable_fast_quotas(slots == 0)
            self.config.set_outputs_buffer_size(4)

        def build(self):
            with contextlib.ExitStack() as scopes:
                if apart:
                    scopes.enter_context(sl.stream("compute:1"))
                if slots:
                    scopes.enter_context(sl.register_quota(slots))
                x, y = self.input()
            x.requires_grad_()
            loss = sl.nn.functional.cross_entropy(self.net(x), y)
            (gradient,) = sl.autograd.grad(loss, x)
            return x.reshape(RUNG, -1) + 0.01 * gradient.reshape(RUNG, -1).sign()

    return Attack()


def make_attack(*arguments):
    graph = attack(*arguments)

    def run(count: int) -> None:
        for _ in range(count):
            result = graph()
        result.numpy()

    return run


def stages_of(side: int, costs: str) -> tuple[float, float]:
    """Seconds of a step in decoding, and in the net, on a core each. What kernels take is written to `costs`."""
    graph = attack(side, True, 1, 1)
    graph().numpy()
    graph.set_trace()
    for _ in range(4):
        graph().numpy()
    times = {True: 0.0, False: 0.0}
    events = traced_kernels(graph)
    graph.save_costs(costs)
    for event in events:
        if not event["name"].startswith("host_function"):
            times[event["name"].startswith("decode_image") and not event["name"].endswith("copy")] += event["dur"] / 4e6
    return times[True], times[False]


def balanced(scratch: str) -> None:
    """A core each: the compiler's slots against one slot, and a step against its longest stage."""
    found = {side: stages_of(side, f"{scratch}/{side}.json") for side in SIDES}
    side = min(SIDES, key=lambda s: abs(math.log(found[s][0] / found[s][1])))
    if wanted("data.stages.solved") or wanted("data.stages.longest"):
        solved, one = measure([Side(make_attack, side, True, 1, 0, f"{scratch}/{side}.json"), Side(make_attack, side, True, 1, 1)])
        step, longest = statistics.median(solved) * 1e3, max(found[side]) * 1e3
        report("data.stages.solved", step, statistics.median(one) * 1e3, "one slot", "ms", len(solved), max(spread(solved), spread(one)), aim=1.6,
               side=side)
        report("data.stages.longest", step, longest, "the longest stage alone", "ms", len(solved), spread(solved), aim=1 / 1.15, side=side)
    for name, ratio in (("1_1", 1), ("1_4", 1 / 4), ("4_1", 4)):
        if not wanted(f"data.stages.list_{name}"):
            continue
        side = min(SIDES, key=lambda s: abs(math.log(found[s][0] / found[s][1] / ratio)))
        costs = f"{scratch}/{side}.json"
        ours, peer = measure([Side(make_attack, side, True, 0, 0, costs), Side(make_attack, side, False, 0, 0, costs)])
        report(f"data.stages.list_{name}", statistics.median(ours) * 1e3, statistics.median(peer) * 1e3, "one list on all cores", "ms", len(ours),
               max(spread(ours), spread(peer)), aim=0.97, side=side, ratio_of_stages=found[side][0] / found[side][1])


# Advice.

def busy(seconds: float):
    """A function of Python that computes for so long."""
    import numpy as np

    def busy_for(x):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            np.sqrt(np.abs(x) + 1)
        return x

    return busy_for


def slow(seconds: float):
    """A function of Python that waits for so long, as for another machine."""
    def slow_for(x):
        time.sleep(seconds)
        return x

    return slow_for


# Functions stand between the input and the net, each with its stream; the numbers say how many products of matrices the net has.
MADE = {
    "waits twice": ([(slow, 0.008, "host"), (slow, 0.008, "host")], 2),
    "waits and computes": ([(slow, 0.010, "host"), (busy, 0.004, "host")], 2),
    "waits beside a net": ([(slow, 0.006, "host"), (slow, 0.004, "host")], 12),
    "three in a row": ([(slow, 0.006, "host"), (slow, 0.005, "host"), (slow, 0.004, "host")], 4),
}


def functions(kind: str, streams: tuple[str, ...], costs: str, slots: dict[str, int] | None = None):
    """A plan of functions and a net, on one core each. slots: by register, one each otherwise; None: the compiler says."""
    import sluice as sl
    stages, layers = MADE[kind]
    size = 256
    weights = [sl.nn.Parameter(sl.randn(size, size) / size ** 0.5) for _ in range(layers)]

    class Chain(sl.nn.Graph):
        def __init__(self):
            super().__init__(name="chain")
            self.config.set_cores(1)
            self.config.set_outputs_buffer_size(8)
            self.config.enable_fast_quotas(slots is None)
            if costs:
                self.config.set_cost_file(costs)
            for register, quota in (slots or {}).items():
                self.config.set_quota(register, quota)

        def build(self, x):
            for k, ((make, seconds, _), stream) in enumerate(zip(stages, streams)):
                function = make(seconds)
                function.__name__ = f"stage_{k}"
                x = sl.host_function(function, x, out=((size, size), sl.float32), stream=stream)
            for weight in weights:
                x = x @ weight
            return x.sum()

    return Chain(), sl.randn(size, size)


def period(graph, x, seconds: float = 0.6) -> float:
    """Seconds of a step while steps follow each other."""
    for _ in range(4):
        y = graph(x)
    y.item()
    found = []
    for _ in range(3):
        n, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            y = graph(x)
            n += 1
        y.item()
        found.append((time.perf_counter() - begin) / n)
    return statistics.median(found)


def plan_viz(view: str, graph, scratch: str):
    from sluice._base.tools import find_tool
    graph.save_plan(f"{scratch}/plan.json")
    text = subprocess.check_output([find_tool("plan-viz"), view, f"{scratch}/plan.json", "--steps", "64", "--json"])
    return json.loads(text)


def followed(kind: str, scratch: str):
    """For a move to another stream, and for one slot more: what the advice says a step takes then, and what it takes."""
    from sluice.profiler import advise_placement
    streams, costs = tuple(stream for _, _, stream in MADE[kind][0]), f"{scratch}/costs.json"
    graph, x = functions(kind, streams, "")
    graph.config.enable_trace()
    period(graph, x)
    graph.save_costs(costs)
    graph.close()
    best = advise_placement(lambda: functions(kind, streams, costs)[0], x).best
    if best is not None:
        moved = tuple(best.to if best.stage == f"stage_{k}" else stream for k, stream in enumerate(streams))
        graph, x = functions(kind, moved, costs)
        yield f"{kind}: {best.stage} to {best.to}", best.seconds, period(graph, x)
        graph.close()
    apart = tuple(f"host:{k}" if k else "host" for k in range(len(streams)))
    graph, x = functions(kind, apart, costs, {})
    graph(x).item()
    told = plan_viz("bottleneck", graph, scratch)["slots"]
    graph.close()
    slot = min((a for a in told if a["register"].startswith("host_function")), key=lambda a: a["period_ns"], default=None)
    if slot is not None:
        graph, x = functions(kind, apart, costs, {slot["register"]: 2})
        yield f"{kind}: a slot more for {slot['register']}", slot["period_ns"] / 1e9, period(graph, x)
        graph.close()


def advice() -> None:
    """Eight plans with what was advised of them: how far the forecast is from what a step then takes, at worst."""
    found = []
    for kind in MADE:
        with tempfile.TemporaryDirectory() as scratch:  # costs of one kind: functions of all have the same names
            found += followed(kind, scratch)
    errors = [abs(then / told - 1) for _, told, then in found]
    plans = {what: {"forecast_ms": told * 1e3, "measured_ms": then * 1e3} for what, told, then in found}
    report("data.stages.advice", max(errors), 0.1, "the most it may be", "of a step's time", len(found), spread(errors), aim=1, plans=plans)


if __name__ == "__main__":
    if any(map(wanted, ("data.stages.solved", "data.stages.longest", "data.stages.list_1_1", "data.stages.list_1_4", "data.stages.list_4_1"))):
        with tempfile.TemporaryDirectory() as folder:
            balanced(folder)
    if wanted("data.stages.advice"):
        advice()
