#!/usr/bin/env python3
"""attention.fwd.*, attention.train.*: scaled_dot_product_attention against torch's fused kernel of the CPU.

Both sides live in this process and take turns in short bursts, so that a busy machine is as busy for the one as for the
other; medians, and `least` has the fastest of each. `floor`: the products' operations over what a large matrix product
reaches here.
"""
import os
import statistics
import time

from common import report, spread, wanted

THREADS = len(os.sched_getaffinity(0))
# name: batch, heads, length, width, causal
CASES = {"bert": (8, 12, 128, 64, False), "gpt2": (4, 12, 256, 64, True), "long": (1, 8, 1024, 64, False),
         "long_causal": (1, 8, 1024, 64, True)}


def burst(step, seconds: float = 0.02) -> float:
    """Seconds per step over about `seconds`."""
    count, begin = 0, time.perf_counter()
    while (now := time.perf_counter()) - begin < seconds or count == 0:
        step()
        count += 1
    return (now - begin) / count


def side(module, shape, causal: bool, train: bool):
    attend = module.nn.functional.scaled_dot_product_attention
    q, k, v = (module.randn(*shape).requires_grad_(train) for _ in range(3))
    grad = module.randn(*shape)

    def forward():
        with module.no_grad():
            attend(q, k, v, is_causal=causal)

    def step():
        module.autograd.grad(attend(q, k, v, is_causal=causal), (q, k, v), grad)

    return step if train else forward


def product_rate(torch) -> float:
    """Operations per second of a large product."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024 ** 3 / min(burst(lambda: a @ b) for _ in range(15))


def main() -> None:
    import torch

    import sluice
    torch.set_num_threads(THREADS)
    sluice.set_num_threads(THREADS)
    rate = product_rate(torch)
    for train in (False, True):
        for case, (batch, heads, length, width, causal) in CASES.items():
            name = f"attention.{'train' if train else 'fwd'}.{case}"
            if not wanted(name):
                continue
            sides = [side(module, (batch, heads, length, width), causal, train) for module in (sluice, torch)]
            for step in sides:
                burst(step)
            times = list(zip(*([burst(step) for step in sides] for _ in range(25))))
            ours, theirs = (statistics.median(t) * 1e3 for t in times)
            operations = batch * heads * length ** 2 * width * (14 if train else 4) / (2 if causal else 1)
            report(name, ours, theirs, "PyTorch's flash attention", "ms", len(times[0]), max(map(spread, times)),
                   least=[min(t) * 1e3 for t in times], floor=operations / rate * 1e3)


if __name__ == "__main__":
    main()
