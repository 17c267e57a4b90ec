#!/usr/bin/env python3
"""Which kernels a net's step spends its time in on a GPU: each launch waited for, so sums are those of kernels alone.

usage: kernel_times.py resnet50|gpt2 train|infer fp32|tf32|bf16 [DEVICE] [--each]
"""
import collections
import json
import os
import re
import statistics
import sys
import tempfile

os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # read by the driver when it is loaded
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gpu_bench import sluice_graph  # noqa: E402

STEPS, ROWS = 4, 30


def kernel_times(name, mode, precision, device, tiny, each=False):
    """Milliseconds per step and launches by op and role, or of each kernel by its name, from the trace of the last steps."""
    graph, inputs = sluice_graph(name, mode == "train", precision, device, tiny)
    graph.config.enable_cuda_graphs(False)
    graph.config.enable_trace()
    for _ in range(STEPS + 2):
        graph(*inputs).item()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        graph.save_trace(file.name)
        with open(file.name) as text:
            events = json.load(text)["traceEvents"]
    times = collections.defaultdict(lambda: collections.defaultdict(float))
    launches = collections.Counter()
    steps = sorted({e["args"]["step"] for e in events if e.get("cat") == "kernel"})[-STEPS:]
    for event in events:
        if event.get("cat") == "kernel" and event["args"]["step"] in steps:
            kernel = event["name"]
            if not each:
                kernel = re.sub(r"[_#]\d+$", "", kernel.rpartition("/")[2])
            kernel += f" ({event['args']['role']})"
            times[kernel][event["args"]["step"]] += event["dur"] / 1e3
            launches[kernel] += 1
    return {kernel: (statistics.median(by_step.values()), launches[kernel] / len(steps)) for kernel, by_step in times.items()}


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    each = "--each" in sys.argv
    name, mode, precision, device = (*(a for a in sys.argv[1:] if a != "--each"), "cuda:0")[:4]
    table = kernel_times(name, mode, precision, device, device == "cpu", each)
    for kernel, (milliseconds, launches) in sorted(table.items(), key=lambda item: -item[1][0])[:ROWS]:
        print(f"{milliseconds:9.3f} ms {launches:6.0f} launches  {kernel}")
    print(f"{sum(t for t, _ in table.values()):9.3f} ms in all")


if __name__ == "__main__":
    main()
