"""Trains the digits net data-parallel, one part of each batch on each rank, and then alone on as many simulated devices.

    python -m sluice.distributed.launch --nproc_per_node 2 examples/distributed_digits.py

Every rank loads its own rows. Rank 0 prints whether the losses of both trainings are equal, and writes to --out the plan
of all ranks, with a picture, and result.json.
"""

import argparse
import json
import pathlib
import subprocess
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

import sluice as sl
import sluice.distributed as dist
from digits_net import DigitsNet
from sluice._base.tools import find_tool
from sluice.nn import functional as F

BATCH = 64


class TrainGraph(sl.nn.Graph):
    """One training step: this process's rows of a batch in, the loss of the whole batch out."""

    def __init__(self, net: DigitsNet) -> None:
        super().__init__(name="distributed_digits")
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
        self.config.set_cores(1)  # bits may depend on it

    def build(self, images: sl.Tensor, labels: sl.Tensor) -> sl.Tensor:
        loss = F.cross_entropy(self.net(images), labels)
        loss.backward()
        return loss


def train(placement: sl.placement, rank: int, ranks: int, steps: int) -> tuple[TrainGraph, list[float], float]:
    """Returns (graph, losses, seconds) of this process, which loads part `rank` of `ranks` of every batch."""
    digits = load_digits()
    order = np.random.default_rng(0)
    sl.manual_seed(0)
    graph = TrainGraph(DigitsNet(width=8).to_global(placement, sl.sbp.broadcast))

    def lay(rows: npt.NDArray[Any]) -> sl.Tensor:
        return sl.tensor(np.array_split(rows, ranks)[rank]).to_global(placement, sl.sbp.split(0))

    start = time.perf_counter()
    losses = []
    for _ in range(steps):
        rows = order.choice(len(digits.target), BATCH, replace=False)
        images = ((digits.images[rows] - 4.88) / 6.02).astype(np.float32)
        losses.append(graph(lay(images[:, None]), lay(digits.target[rows])))
    return graph, [loss.item() for loss in losses], time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/digits_distributed"))
    options = parser.parse_args()

    place = dist.init()
    graph, losses, seconds = train(sl.placement("cpu", range(place.world_size)), place.rank, place.world_size, options.steps)
    dist.destroy()
    if place.rank > 0:
        return
    _, alone, _ = train(sl.placement("sim", range(place.world_size)), 0, 1, options.steps)
    equal = losses == alone
    print(f"{place.world_size} ranks: loss {losses[0]:.4f} -> {losses[-1]:.4f} in {options.steps} steps, {seconds:.1f} s; "
          f"one process with {place.world_size} devices: {'the same losses, bit for bit' if equal else 'OTHER LOSSES'}")
    options.out.mkdir(parents=True, exist_ok=True)
    graph.save_plan(options.out / "plan.json")
    subprocess.run([find_tool("plan-viz"), "html", str(options.out / "plan.json"), "-o", str(options.out / "plan.html"),
                    "--source", str(pathlib.Path(__file__).parent)], check=True)
    result = {"ranks": place.world_size, "losses": losses, "losses_of_one_process": alone, "equal": equal, "seconds": seconds}
    (options.out / "result.json").write_text(json.dumps(result, indent=1))
    if not equal:
        raise SystemExit("the losses differ")


if __name__ == "__main__":
    main()
