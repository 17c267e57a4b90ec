"""engine_share.digits, actors_gain.digits, granularity.digits: where the time of a training step goes."""
import statistics
import tempfile

import numpy as np
from common import extent, measure, report, Side, spread, traced_kernels, wanted
from train import digits_net, sluice_graph, sluice_side

BATCH = 32


def engine_share(rounds=7, steps=100):
    """Share of a traced step during which the compute stream runs no kernel, while steps follow each other."""
    graph, inputs = sluice_graph("digits")
    shares = []
    for _ in range(rounds + 1):
        graph.set_trace(True)
        for _ in range(steps):
            loss = graph(*inputs)
        loss.item()
        kernels = traced_kernels(graph)
        shares.append(1 - sum(e["dur"] for e in kernels) / extent(kernels))
    return shares[1:]  # the first round warms up


def augment(images):
    """A host stage as in examples/train_digits.py: shift by up to a pixel and normalise."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 8), axis=(1, 2))
    return ((windows[np.arange(len(images)), 1, 1] - np.float32(4.88)) / np.float32(6.02))[:, None]


def augmented_side(stream):
    """Training with the host stage as an actor on `stream`; "" puts it into the compute stream's one list. What kernels and the stage take is
    measured first, and the compiler says how many cores each stream has."""
    with tempfile.TemporaryDirectory() as folder:
        measured = augmented(stream, "")
        measured.graph.set_trace(True)
        measured(20)
        measured.graph.save_costs(f"{folder}/costs.json")
        measured.graph.close()
        return augmented(stream, f"{folder}/costs.json")


def augmented(stream, costs):
    import sluice as sl
    sl.manual_seed(0)
    net = digits_net(sl.nn)

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net, self.loss_fn = net, sl.nn.CrossEntropyLoss()
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.05, momentum=0.9))

        def build(self, images, labels):
            with sl.register_quota(2):
                batch = sl.host_function(augment, images, out=((BATCH, 1, 8, 8), sl.float32), stream=stream)
            loss = self.loss_fn(self.net(batch), labels)
            loss.backward()
            return loss

    graph = Train()
    if costs:
        graph.config.set_cost_file(costs)
    inputs = sl.randint(0, 17, (BATCH, 8, 8)).to(sl.uint8), sl.randint(0, 10, (BATCH,))

    def run(steps):
        for _ in range(steps):
            loss = graph(*inputs)
        loss.item()

    run(1)  # compiles while the costs are there
    run.graph = graph
    return run


if __name__ == "__main__":
    if wanted("engine_share.digits"):
        shares = engine_share()
        report("engine_share.digits", statistics.median(shares), None, "none", "fraction of the step", len(shares),
               spread(shares))
    if wanted("actors_gain.digits"):
        sides = [Side(augmented_side, "host"), Side(augmented_side, "")]
        ours, peer = measure(sides)
        report("actors_gain.digits", statistics.median(ours) * 1e3, statistics.median(peer) * 1e3,
               "the same kernels as one list, all cores", "ms", len(ours), max(spread(ours), spread(peer)), aim=1)
    if wanted("granularity.digits"):
        sides = [Side(sluice_side, "digits", "program"), Side(sluice_side, "digits", "op")]
        programs, ops = measure(sides)
        sizes = [sluice_graph("digits", granularity)[0].memory()["total"] for granularity in ("program", "op")]
        report("granularity.digits", statistics.median(programs) * 1e3, statistics.median(ops) * 1e3,
               "one actor per kernel", "ms", len(ops), max(spread(programs), spread(ops)), bytes_ratio=sizes[1] / sizes[0])
