"""overlap.quota2: balanced host and compute stages, joined by a register of quota 1 or 2, and as one sequential list."""
import statistics
import time

import numpy as np
from common import Side, measure, report, spread, wanted
from train import THREADS

SIZE, LAYERS = 256, 24


def stages(quota, stream, cores, host_seconds):
    """A chain of matmuls fed by a host stage that computes for `host_seconds`."""
    import sluice as sl
    weights = [sl.nn.Parameter(sl.randn(SIZE, SIZE) / SIZE ** 0.5) for _ in range(LAYERS)]

    def host(images):
        end = time.perf_counter() + host_seconds
        total = images
        while time.perf_counter() < end:
            total = np.sqrt(np.abs(total) + 1, dtype=np.float32)
        return images

    class Chain(sl.nn.Graph):
        def build(self, x):
            if host_seconds:
                with sl.register_quota(quota):
                    x = sl.host_function(host, x, out=((SIZE, SIZE), sl.float32), stream=stream)
            y = x
            for weight in weights:
                y = y @ weight
            return (x + y).sum()  # x is read to the end, so one slot means no overlap

    graph = Chain()
    graph.config.set_cores(cores)
    x = sl.randn(SIZE, SIZE)

    def run(steps):
        for _ in range(steps):
            y = graph(x)
        y.item()
    return run


if __name__ == "__main__":
    if wanted("overlap.quota2"):
        alone = Side(stages, 1, "host", 1, 0.0)
        seconds = statistics.median(measure([alone], rounds=5)[0])  # of the compute stage on one core
        sides = [Side(stages, 2, "host", 1, seconds), Side(stages, 1, "host", 1, seconds),
                 Side(stages, 1, "", THREADS, seconds)]
        two, one, sequential = map(list, measure(sides))
        report("overlap.quota2", statistics.median(two) * 1e3, statistics.median(one) * 1e3, "quota 1", "ms", len(two),
               max(spread(two), spread(one)))
        report("overlap.quota2_sequential", statistics.median(two) * 1e3, statistics.median(sequential) * 1e3,
               "one sequential list, all cores", "ms", len(two), max(spread(two), spread(sequential)))
        report("overlap.quota1_sequential", statistics.median(one) * 1e3, statistics.median(sequential) * 1e3,
               "one sequential list, all cores", "ms", len(one), max(spread(one), spread(sequential)))
