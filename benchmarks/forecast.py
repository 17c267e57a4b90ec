"""forecast.*: a step against what the simulator says of it, from the costs that a run before has measured."""
import json
import statistics
import subprocess
import tempfile
import time

import numpy as np
from common import report, spread, wanted

ROUNDS = 7


def stages(layers, host_seconds):
    """A host stage that computes, and a chain of products on one core."""
    import sluice as sl
    size = 256
    weights = [sl.nn.Parameter(sl.randn(size, size) / size ** 0.5) for _ in range(layers)]

    def host(images):
        end = time.perf_counter() + host_seconds
        while time.perf_counter() < end:
            np.sqrt(np.abs(images) + 1)
        return images

    class Chain(sl.nn.Graph):
        def build(self, x):
            y = sl.host_function(host, x, out=((size, size), sl.float32)) if host_seconds else x
            for weight in weights:
                y = y @ weight
            return y.sum()

    graph = Chain()
    graph.config.set_cores(1)
    return graph, sl.randn(size, size)


def digits():
    """A step of training on one core."""
    import sluice as sl
    model = sl.nn.Sequential(sl.nn.Linear(784, 256), sl.nn.ReLU(), sl.nn.Linear(256, 256), sl.nn.ReLU(), sl.nn.Linear(256, 10))
    optimizer = sl.optim.SGD(model.parameters(), lr=0.01)

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, x, y):
            loss = sl.nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            return loss

    graph = Train()
    graph.config.set_cores(1)
    rng = np.random.default_rng(0)
    return graph, sl.randn(256, 784), sl.tensor(rng.integers(0, 10, 256))


def period_ms(graph, *inputs, seconds=0.3):
    """Milliseconds per step of calls that overlap."""
    graph(*inputs).item()
    n, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        y = graph(*inputs)
        n += 1
    y.item()
    return (time.perf_counter() - begin) / n * 1e3


def compare(name, make):
    from sluice._base.tools import find_tool
    if not wanted(name):
        return
    with tempfile.TemporaryDirectory() as scratch:
        graph, *inputs = make()
        graph.config.enable_trace()
        period_ms(graph, *inputs)
        graph.save_costs(f"{scratch}/costs.json")
        later, *inputs = make()
        later.config.set_cost_file(f"{scratch}/costs.json")
        periods = [period_ms(later, *inputs) for _ in range(ROUNDS)]
        later.save_plan(f"{scratch}/plan.json")
        text = subprocess.check_output([find_tool("plan-viz"), "simulate", f"{scratch}/plan.json", "--steps", "64", "--json"])
    report(name, statistics.median(periods), json.loads(text)["period_ns"] / 1e6, "what costs of the run before predict", "ms", ROUNDS,
           spread(periods))


if __name__ == "__main__":
    compare("forecast.host_bound", lambda: stages(6, 0.010))
    compare("forecast.compute_bound", lambda: stages(24, 0.002))
    compare("forecast.chain", lambda: stages(24, 0))
    compare("forecast.training", digits)
