"""infer.resnet50.BATCH: inference against PyTorch eager, and with packed weights against weights reordered in each step;
infer.resnet50.1.int8: with 8-bit integers against our float32 and bfloat16, and against PyTorch eager in float32."""
import os
import statistics
import sys

from common import Side, measure, report, spread, wanted
from train import THREADS

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu"))


def net_and_images(torch, batch):
    from nets import resnet50
    torch.manual_seed(0)
    return resnet50(torch, (3, 4, 6, 3), 64, 1000).eval(), torch.randn(batch, 3, 224, 224)


def sluice_side(batch, packed):
    import sluice as torch
    net, images = net_and_images(torch, batch)

    class Infer(torch.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.config.enable_pack_weights(packed)
            self.config.set_cores(THREADS)

        def build(self, x):
            return self.net(x)

    graph = Infer()

    def run(steps):  # each answer is waited for, as a caller with one image does
        with torch.no_grad():
            for _ in range(steps):
                graph(images).sync()
    run(1)
    return run


def lower_side(batch, precision):
    import sluice as torch
    net, images = net_and_images(torch, batch)
    if precision == "int8":
        graph = torch.quantization.quantize(net, [torch.randn(batch, 3, 224, 224) for _ in range(4)])
    else:
        graph, images = torch.nn.Graph.trace(net.bfloat16()), images.bfloat16()

    def run(steps):
        with torch.no_grad():
            for _ in range(steps):
                graph(images).sync()
    run(1)
    return run


def torch_side(batch):
    import torch
    torch.set_num_threads(THREADS)
    net, images = net_and_images(torch, batch)

    def run(steps):
        with torch.no_grad():
            for _ in range(steps):
                net(images)
    return run


if __name__ == "__main__":
    for size in (1, 8):
        name = f"infer.resnet50.{size}"
        if not wanted(name):
            continue
        sides = [Side(sluice_side, size, True), Side(torch_side, size), Side(sluice_side, size, False)]
        times = measure(sides, seconds=1)
        ours, eager, reordered = (statistics.median(t) * 1e3 for t in times)
        report(name, ours, eager, "PyTorch eager", "ms", len(times[0]), max(map(spread, times[:2])))
        report(f"{name}.pack", ours, reordered, "weights reordered in each step", "ms", len(times[0]),
               max(spread(times[0]), spread(times[2])))
    name = "infer.resnet50.1.int8"
    if wanted(name):
        peers = {"our float32": Side(sluice_side, 1, True), "our bfloat16": Side(lower_side, 1, "bf16"),
                 "PyTorch eager": Side(torch_side, 1)}
        ours, *theirs = measure([Side(lower_side, 1, "int8"), *peers.values()], seconds=1)
        for peer, times in zip(peers, theirs):
            report(name, statistics.median(ours) * 1e3, statistics.median(times) * 1e3, peer, "ms", len(ours),
                   max(spread(ours), spread(times)))
