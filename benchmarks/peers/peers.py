#!/usr/bin/env python3
"""resnet50.*, bert.*, gpt2.*, mlp.*, lstm.*: whole nets against every peer, and how far the machine's limits are.

    peers.py [PREFIX] [--peers eager,onnxruntime] [--rounds 7] [--seconds 1] [--tiny]

Each side runs in a process of its own, with the same threads; all sides of a line are measured in turn. A line compares
with the fastest peer; one line more for each peer names it. `also` has GFLOP/s, their share of `peak.PRECISION` (the fastest
product of large matrices in this run), the aim, and where our time goes: matrix kernels, other kernels, reorders, the engine.
The table's "ratio at the peak" is what the ratio would be if the whole step were as fast as that product: no method passes it
but those that need fewer multiplications, as Winograd's does for convolutions of float32.
memory.NET.KIND: the peak of a process's memory beyond what importing the library took, against PyTorch's; `also` has the plan's
ledger. packing.NET.KIND: what the plan's arenas take over their lower bound. first.resnet50.train: until the first step's loss,
nothing kept on disk, against torch.compile. Writes out/peers.md.
"""
import argparse
import concurrent.futures
import importlib.util
import multiprocessing as mp
import os
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "gpu")]
from common import extent, measure, report, Side, spread, traced_kernels  # noqa: E402

import sides  # noqa: E402
from workloads import WORKLOADS, Workload, made, optimizer  # noqa: E402

MATRIX = ("conv", "fused_conv", "linear", "matmul", "fused_matmul", "attention", "lstm", "loop")  # ops whose names start so
NAMES = {"eager": "PyTorch eager", "channels_last": "PyTorch eager, channels last", "compile": "torch.compile",
         "freezing": "torch.compile with freezing", "onnxruntime": "ONNX Runtime"}
HELD = [Workload("resnet50", "infer", 16, "fp32", (), 0.5), Workload("resnet50", "train", 16, "fp32", (), 0.6),
        Workload("bert", "train", 8, "fp32", (), 0.6), Workload("gpt2", "train", 4, "fp32", (), 0.6)]


def alone(function, *arguments):
    """The result of the function, in a fresh process."""
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def flops(work, tiny):
    """The operations of a step, as PyTorch counts them: two of each multiplication and addition of its products."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    if work.kind == "generate":
        return None  # torch does not count our loop of tokens
    net, x, y = made(torch, work, tiny)
    if work.net == "lstm":  # nor fused LSTMs: forward, gradients of weights, and of inputs, but for the net's own
        weights = [weight.numel() for weight in net.layers.parameters() if weight.dim() == 2]
        return 2 * x.shape[:2].numel() * (3 * sum(weights) - weights[0])
    with FlopCounterMode(display=False) as counter:
        if work.kind == "infer":
            with torch.no_grad():
                net.eval()(x)
        else:
            torch.nn.functional.cross_entropy(net(x), y).backward()
    return counter.get_total_flops()


def parts(work, tiny):
    """Shares of a step of ours: {what: share}, by a trace of some steps."""
    graph, inputs = sides.sluice_graph(work, tiny)
    graph.set_trace(True)
    for _ in range(3):
        result = graph(*inputs)
    result.sync()
    graph.synchronize()
    kernels = traced_kernels(graph)
    ops = {k["name"]: k["op"] for k in graph.plan["kernels"]}
    took = dict.fromkeys(("matrix", "other", "reorder"), 0.0)
    for event in kernels:
        op = ops.get(event["name"], "")
        kind = "reorder" if op.startswith("reorder") else "matrix" if op.startswith(MATRIX) else "other"
        took[kind] += event["dur"]
    whole = extent(kernels)
    shares = {kind: round(time / whole, 3) for kind, time in took.items()}
    return {**shares, "engine": round(1 - sum(took.values()) / whole, 3)}


def product(library, precision, size):
    """`run(n)`: n products of square matrices, whose best is the machine's peak."""
    if library == "torch":
        import torch as lib
        lib.set_num_threads(sides.THREADS)
    else:
        import sluice as lib
    dtype = lib.bfloat16 if precision == "bf16" else lib.float32
    x, y = (lib.randn(size, size).to(dtype) for _ in range(2))

    def run(steps):
        for _ in range(steps):
            z = x @ y
        z[0, 0].item()
    return run


def peak(precision, options):
    size = 128 if options.tiny else 2048  # CPUs without bfloat16 take seconds for a large one
    ours, theirs = measure([Side(product, library, precision, size) for library in ("sluice", "torch")], options.rounds, options.seconds)
    gflops = [2 * size ** 3 / min(times) / 1e9 for times in (ours, theirs)]
    report(f"peak.{precision}", *gflops, "PyTorch's product of the same matrices", "GFLOP/s", len(ours), max(spread(ours), spread(theirs)),
           ratio=gflops[0] / gflops[1])
    return max(gflops)


def sides_of(work, tiny, peers):
    yield "sluice", Side(sides.sluice, work, tiny)
    for peer in work.peers:
        if peer not in peers:
            continue
        if peer == "onnxruntime" and not all(map(importlib.util.find_spec, ("onnxruntime", "onnx"))):
            print("peers: without ONNX Runtime; tools/setup.sh bench installs it", file=sys.stderr)
            continue
        if peer == "onnxruntime":
            yield peer, Side(sides.onnxruntime, work, tiny)
        else:  # torch.compile has processes of its own
            yield peer, Side(sides.torch, work, tiny, peer, daemon=peer not in ("compile", "freezing"))


def compare(work, options, peaks):
    contestants = {}
    for name, side in sides_of(work, options.tiny, options.peers):
        contestants[name] = side
        print(f"peers: {work.name}: {name} is ready", file=sys.stderr, flush=True)
    times = dict(zip(contestants, measure(list(contestants.values()), options.rounds, options.seconds)))
    medians = {name: statistics.median(t) * 1e3 for name, t in times.items()}
    ours = medians.pop("sluice")
    best = min(medians, key=medians.get)
    also = dict(aim=work.aim, parts=alone(parts, work, options.tiny))
    if count := alone(flops, work, options.tiny):
        if work.precision not in peaks:
            peaks[work.precision] = peak(work.precision, options)
        gflops = count / ours / 1e6
        also |= dict(gflops=float(f"{gflops:.4g}"), of_peak=float(f"{gflops / peaks[work.precision]:.3g}"))
    for name in sorted(medians, key=medians.get):
        report(work.name if name == best else f"{work.name}.{name}", ours, medians[name], NAMES[name], "ms", len(times[name]),
               max(spread(times["sluice"]), spread(times[name])), **(dict(also=also) if name == best else {}))
    return work, ours, medians, also


def resident(what):
    """Bytes of the process: VmRSS now, or VmHWM, the most there were."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {what}")


def held_by(library, work, tiny):
    """(most bytes of three steps beyond the import, the ledger's bytes or None)."""
    module = __import__(library)
    module.nn.functional.relu(module.ones(8))  # what the first op sets up belongs to the library
    base = resident("VmRSS")
    if library == "torch":
        sides.torch(work, tiny, "eager")(3)
        return resident("VmHWM") - base, None
    graph, inputs = sides.sluice_graph(work, tiny, search=False)
    for _ in range(3):
        graph(*inputs).sync()
    return resident("VmHWM") - base, graph.memory()["total"]


def memory(work, tiny):
    ours, ledger = alone(held_by, "sluice", work, tiny)
    theirs, _ = alone(held_by, "torch", work, tiny)
    report(f"memory.{work.net}.{work.kind}", ours / 2**20, theirs / 2**20, "PyTorch eager", "MiB", 1, 0.0,
           also=dict(ledger=round(ledger / 2**20, 1), aim=f"at most {work.aim} of PyTorch's"))


def arenas_of(work, tiny):
    graph, _ = sides.sluice_graph(work, tiny, search=False)
    return [sum(a[key] for a in graph.plan["arenas"]) for key in ("bytes", "lower_bound")]


def packing(work, tiny):
    taken, bound = alone(arenas_of, work, tiny)
    report(f"packing.{work.net}.{work.kind}", taken / 2**20, bound / 2**20, "the lower bound; the aim, a ratio of 0.98", "MiB", 1, 0.0)


def first_step(library, tiny):
    """Seconds until the loss of the first step is there."""
    work = HELD[1]
    if library == "sluice":
        begin = time.perf_counter()
        sides.sluice_graph(work, tiny, search=False)
        return time.perf_counter() - begin
    import torch
    with tempfile.TemporaryDirectory() as directory:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = directory
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
        net, x, y = made(torch, work, tiny)
        sgd = optimizer(torch, work, net)
        begin = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(torch.compile(net)(x), y)
        loss.backward()
        sgd.step()
        loss.item()
        return time.perf_counter() - begin


def table(lines):
    yield f"Whole nets against their peers, {sides.THREADS} threads, {time.strftime('%Y-%m-%d')}; ms per step\n"
    shares = ("matrix kernels", "other kernels", "reorders", "engine")
    yield ("| workload | Sluice | " + " | ".join(NAMES.values()) + " | ratio to the fastest | aim | GFLOP/s | of the peak | "
           + "ratio at the peak | " + " | ".join(shares) + " |\n|---" + "|---:" * (len(NAMES) + 10) + "|")
    for work, ours, medians, also in lines:
        cells = [f"{medians[peer]:.2f}" if peer in medians else "" for peer in NAMES]
        where = [f"{share:.0%}" for share in also["parts"].values()]
        ratio = min(medians.values()) / ours
        speed = ([f"{also['gflops']:.0f}", f"{also['of_peak']:.0%}", f"{ratio / also['of_peak']:.2f}"] if "gflops" in also
                 else [""] * 3)
        row = [work.name, f"{ours:.2f}", *cells, f"{ratio:.2f}", f"{work.aim:g}", *speed, *where]
        yield "| " + " | ".join(row) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", nargs="?", default="", help="which lines (default: all)")
    parser.add_argument("--peers", default=",".join(NAMES), help="which of them (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each side (default 7)")
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement, at least one step (default 1)")
    parser.add_argument("--tiny", action="store_true", help="small nets, to see that it works")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out/peers.md", help="where the table goes")
    options = parser.parse_args()
    options.peers = options.peers.split(",")
    if "eager" not in options.peers or not set(options.peers) <= set(NAMES):
        parser.error(f"--peers: got {','.join(options.peers)}; must be eager and some of {', '.join(NAMES)}")

    def wanted(name):
        return name.startswith(options.prefix)

    peaks = {}
    lines = [compare(work, options, peaks) for work in WORKLOADS if wanted(work.name)]
    for work in HELD:
        if wanted(f"memory.{work.net}.{work.kind}"):
            memory(work, options.tiny)
        if wanted(f"packing.{work.net}.{work.kind}"):
            packing(work, options.tiny)
    if wanted("first.resnet50.train"):
        ours, theirs = alone(first_step, "sluice", options.tiny), alone(first_step, "torch", options.tiny)
        report("first.resnet50.train", ours, theirs, "torch.compile", "s", 1, 0.0)
    if lines:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("\n".join(table(lines)) + "\n")
        print(f"peers: wrote {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
