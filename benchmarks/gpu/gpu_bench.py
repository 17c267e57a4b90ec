#!/usr/bin/env python3
"""gpu.*: training and inference on a GPU against PyTorch eager and torch.compile, and what launches and copies cost.

Both sides copy their batch from the host in every step, and compute in float32 (fp32), with TensorFloat-32 allowed
(tf32), or with parameters and data in bfloat16 (bf16). `--device cpu --tiny` runs the same lines with small nets: a check
of this script where there is no GPU, whose figures mean nothing.
"""
import argparse
import os
import statistics
import sys
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]
from common import Side, measure, report, spread  # noqa: E402
from nets import workload  # noqa: E402

PRECISIONS = ("fp32", "tf32", "bf16")
# Options of graph.config that are off by default, each against the usual graph: in training of which nets, by which precisions.
OPTIONS = {
    "trials": ("enable_kernel_trial_run", ("resnet50", "gpt2"), PRECISIONS),
    "updates": ("enable_multi_tensor_update", ("resnet50", "gpt2"), ("bf16",)),
    "attention": ("enable_cudnn_attention", ("gpt2",), ("bf16",)),
}


def prepared(torch, name, precision, tiny):
    if hasattr(torch, "set_float32_matmul_precision"):
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if hasattr(torch, "backends") and hasattr(torch.backends, "cudnn"):
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
    net, x, y, optimizer = workload(torch, name, tiny)
    if precision == "bf16":
        net.to(torch.bfloat16)
        x = x.to(torch.bfloat16) if x.is_floating_point() else x
    return net, x, y, optimizer


def precisions():
    import sluice as sl
    if hasattr(sl, "set_float32_matmul_precision"):
        return PRECISIONS
    print("gpu_bench: tf32 is left out: Sluice has no such option", file=sys.stderr)
    return tuple(p for p in PRECISIONS if p != "tf32")


def sluice_graph(name, trains, precision, device, tiny, config=()):
    """A graph, with these options of its config, and its inputs."""
    import sluice as torch
    net, x, y, optimizer = prepared(torch, name, precision, tiny)

    class Train(torch.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(optimizer)

        def build(self, x, y):
            loss = torch.nn.functional.cross_entropy(self.net(x).float(), y)
            loss.backward()
            return loss

    class Infer(torch.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net.eval()

        def build(self, x):
            return self.net(x).float().amax()

    graph, inputs = (Train(), (x, y)) if trains else (Infer(), (x,))
    graph.config.set_device(torch.device(device))
    for option in config:
        getattr(graph.config, option)()
    return graph, inputs


def sluice_side(*arguments):
    graph, inputs = sluice_graph(*arguments)
    return runner(lambda: graph(*inputs))


def runner(step):
    """Runs steps and waits for the last; once now, so that what cannot run is told at the start."""
    def run(steps):
        for _ in range(steps):
            result = step()
        result.item()
    run(1)
    return run


def torch_side(name, trains, precision, device, tiny, compiled):
    import torch
    net, x, y, optimizer = prepared(torch, name, precision, tiny)
    net.to(device).train(trains)
    if device.startswith("cuda"):
        x, y = x.pin_memory(), y.pin_memory()
    forward = torch.compile(net) if compiled else net

    def train():
        logits = forward(x.to(device, non_blocking=True)).float()
        loss = torch.nn.functional.cross_entropy(logits, y.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    @torch.no_grad()
    def infer():
        return forward(x.to(device, non_blocking=True)).float().amax()

    return runner(train if trains else infer)


def small_matmuls(framework, device, kernels, graphs):
    """A step of `kernels` products too small to matter, so that it costs what launching them costs."""
    if framework == "sluice":
        import sluice as torch
        weights = [torch.nn.Parameter(torch.eye(8)) for _ in range(kernels)]

        class Chain(torch.nn.Graph):
            def build(self, x):
                for weight in weights:
                    x = x @ weight
                return x.sum()

        graph = Chain()
        graph.config.set_device(torch.device(device))
        graph.config.enable_cuda_graphs(graphs)
        x = torch.ones(8, 8)
        return runner(lambda: graph(x))
    import torch
    torch.set_grad_enabled(False)
    weights, x = [torch.eye(8, device=device) for _ in range(kernels)], torch.ones(8, 8, device=device)

    def chain():
        y = x
        for weight in weights:
            y = y @ weight
        return y.sum()

    if not graphs:
        return runner(chain)
    beside = torch.cuda.Stream()
    with torch.cuda.stream(beside):
        chain()  # loads what the kernels need
    torch.cuda.current_stream().wait_stream(beside)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        result = chain()

    def replay():
        recorded.replay()
        return result
    return runner(replay)


def copied(device, rows, in_flight):
    """A step whose copies take about as long as its products; `in_flight` 1: one after the other."""
    import sluice as torch
    weight = torch.nn.Parameter(torch.randn(1024, 1024))

    class Step(torch.nn.Graph):
        def build(self, x):
            return (x @ weight @ weight).sum()

    graph = Step()
    graph.config.set_device(torch.device(device))
    graph.config.set_outputs_buffer_size(in_flight)
    x = torch.randn(rows, 1024)
    return runner(lambda: graph(x))


def busy_share(name, device, tiny, steps):
    """The share of a training step that the host's thread of the compute stream is at work."""
    graph, inputs = sluice_graph(name, True, "fp32", device, tiny)
    run = runner(lambda: graph(*inputs))
    run(3)

    def busy():
        return sum(s["busy_ns"] for s in graph.counters()["streams"] 
                   if s["name"].startswith(device) and "/compute" in s["name"])
    before, begin = busy(), time.perf_counter_ns()
    run(steps)
    return (busy() - before) / (time.perf_counter_ns() - begin)


def torch_has(device):
    try:
        import torch
        torch.zeros(1, device=device)
        return True
    except (ImportError, RuntimeError, AssertionError) as error:
        print(f"gpu_bench: no PyTorch on {device}, so no peers: {str(error).splitlines()[0]}", file=sys.stderr)
        return False


class Bench:
    def __init__(self, options):
        self.options = options
        self.torch, self.precisions = torch_has(options.device), precisions()

    def wanted(self, name):
        return not self.options.prefixes or any(name.startswith(prefix) for prefix in self.options.prefixes)

    def side(self, name, *arguments):
        """The side, or None and a word why not."""
        try:
            return Side(*arguments)
        except RuntimeError:
            print(f"gpu_bench: {name}: left out: {arguments[0].__name__}{arguments[1:]} does not start", file=sys.stderr)
            return None

    def compare(self, name, ours, peers, scale=1e3, unit="ms"):
        """A line per peer; without any, one with ours alone. `ours`, `peers`: arguments of Side, by name."""
        if not any(self.wanted(f"{name}.{peer}") for peer in [*peers, "alone"]):
            return
        ours = self.side(name, *ours)
        if ours is None:
            return
        sides = {peer: self.side(f"{name}.{peer}", *make) for peer, make in peers.items() if self.wanted(f"{name}.{peer}")}
        sides = {peer: side for peer, side in sides.items() if side is not None}
        times, *others = measure([ours, *sides.values()], self.options.rounds, self.options.seconds)
        mine = statistics.median(times) * scale
        for peer, other in zip(sides, others):
            report(f"{name}.{peer}", mine, statistics.median(other) * scale, peer, unit, len(times),
                   max(spread(times), spread(other)), device=self.options.device, tiny=self.options.tiny)
        if not sides:
            report(f"{name}.alone", mine, None, "none", unit, len(times), spread(times), device=self.options.device,
                   tiny=self.options.tiny)

    def nets(self):
        o = self.options
        for name in ("resnet50", "gpt2"):
            for trains, mode in ((True, "train"), (False, "infer")):
                for precision in self.precisions:
                    peers = {peer: (torch_side, name, trains, precision, o.device, o.tiny, peer == "compile")
                             for peer in o.peers if self.torch}
                    self.compare(f"gpu.{name}.{mode}.{precision}", (sluice_side, name, trains, precision, o.device, o.tiny, o.config), peers)

    def choices(self):
        o = self.options
        for line, (option, nets, precisions) in OPTIONS.items():
            for name, precision in ((name, p) for name in nets for p in self.precisions if p in precisions):
                arguments = (sluice_side, name, True, precision, o.device, o.tiny)
                self.compare(f"gpu.{line}.{name}.{precision}", (*arguments, (option,)), {"usual": arguments})

    def launches(self):
        o, kernels = self.options, 10 if self.options.tiny else 400
        per_kernel = 1e6 / kernels
        peers = {"ungraphed": (small_matmuls, "sluice", o.device, kernels, False)}
        if self.torch:
            peers["eager"] = (small_matmuls, "torch", o.device, kernels, False)
            if o.device.startswith("cuda"):
                peers["torch_graph"] = (small_matmuls, "torch", o.device, kernels, True)
        self.compare("gpu.launch", (small_matmuls, "sluice", o.device, kernels, True), peers, per_kernel, "us per kernel")

    def overlap(self):
        o, rows = self.options, 64 if self.options.tiny else 16384
        self.compare("gpu.overlap", (copied, o.device, rows, 2), {"one_step": (copied, o.device, rows, 1)})

    def engine_share(self):
        o = self.options
        for name in ("resnet50", "gpt2"):
            if self.wanted(f"gpu.engine_share.{name}"):
                shares = [busy_share(name, o.device, o.tiny, 3 if o.tiny else 20) for _ in range(max(2, o.rounds // 2))]
                report(f"gpu.engine_share.{name}", statistics.median(shares), None, "none", "fraction of the step", len(shares),
                       spread(shares), device=o.device, tiny=o.tiny)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefixes", nargs="*", metavar="PREFIX", help="only lines whose names start so")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="nets of a few parameters")
    parser.add_argument("--peers", default="eager,compile", type=lambda text: text.split(","))
    parser.add_argument("--config", default=(), type=lambda text: text.split(","), metavar="OPTION,...",
                        help="of Sluice's graphs in the lines of nets, as methods of graph.config: enable_cudnn_attention")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each side per round")
    options = parser.parse_args()
    import sluice as sl
    try:
        sl.ones(1).to(sl.device(options.device))
    except RuntimeError as error:
        print(f"gpu_bench: skipped: {error}", file=sys.stderr)
        return 0
    bench = Bench(options)
    for lines in (bench.nets, bench.choices, bench.launches, bench.overlap, bench.engine_share):
        lines()
    return 0


if __name__ == "__main__":
    sys.exit(main())
