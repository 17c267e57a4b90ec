#!/usr/bin/env python3
"""The ladder: what each step from an eager program to a compiled one is worth, from one run.

Each rung is measured beside the one below it, both in turn in processes of their own; its factor is the ratio of their times per
image, and the last line measures the first rung beside the last. The second table switches options one at a time. Writes
out/ladder/ladder.md and ladder.png. On two cores it takes more than ten minutes.
"""
import argparse
import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "gpu")]
from common import Side, measure, report, spread  # noqa: E402

THREADS = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
IMPORT = "import torch\n"


def program(library):
    """task.py on `library`: its import is the one line that differs."""
    text = (HERE / "task.py").read_text()
    if text.count(IMPORT) != 1:
        raise SystemExit(f"ladder: task.py: {text.count(IMPORT)} lines are {IMPORT!r}; there must be one")
    names: dict = {}
    exec(compile(text if library == "torch" else text.replace(IMPORT, f"import {library} as torch\n"), "task.py", "exec"), names)
    return names


def eager(library, batch, tiny):
    task = program(library)
    task["torch"].set_num_threads(THREADS)
    net, x = task["classifier"](tiny), task["images"](batch, tiny)

    def run(steps):
        for _ in range(steps):
            result = task["step"](net, x)
        result[2].tolist()  # all of it is there
    return run


def graph_of(passes, batch, packed=False, amp=False, tiny=False):
    """The task as an nn.Graph with `passes` alone, beside those that every plan needs; and its images."""
    import sluice

    task = program("sluice")

    class Look(sluice.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = task["classifier"](tiny)
            self.config.set_cores(THREADS)
            self.config.set_optimization_level(0)
            self.config.enable_pack_weights(packed)
            for name in passes:
                self.config.enable_pass(name)
            if amp:
                self.config.enable_amp()

        def build(self, x):
            return task["look"](self.net, x)

    return Look(), task["images"](batch, tiny).requires_grad_()


def graph(passes, batch, packed, amp, tiny):
    look, x = graph_of(passes, batch, packed, amp, tiny)

    def run(steps):
        for _ in range(steps):
            result = look(x)
        result[2].tolist()
    run(1)
    return run


PRUNED = ("dead_code",)
ONCE = (*PRUNED, "simplify", "common_subexpressions", "fold_constants")
FUSED = (*ONCE, "fuse_bias", "fuse_activation", "fuse_pad", "fuse_convolution", "fuse_elementwise")

# (name, what is new, side, batch)
RUNGS = [
    ("eager", "PyTorch, eager", lambda b, t: Side(eager, "torch", b, t), 1),
    ("import", "the import changed", lambda b, t: Side(eager, "sluice", b, t), 1),
    ("graph", "nn.Graph, nothing left out", lambda b, t: Side(graph, (), b, False, False, t), 1),
    ("pruned", "unread gradients of weights left out", lambda b, t: Side(graph, PRUNED, b, False, False, t), 1),
    ("once", "the second forward pass left out", lambda b, t: Side(graph, ONCE, b, False, False, t), 1),
    ("batch", "16 images at a time", lambda b, t: Side(graph, ONCE, b, False, False, t), 16),
    ("fused", "ops fused, weights packed", lambda b, t: Side(graph, FUSED, b, True, False, t), 16),
    ("amp", "bfloat16", lambda b, t: Side(graph, FUSED, b, True, True, t), 16),
]
# Of the rung "batch", one at a time.
SWITCHES = [
    ("fuse_bias", "a row in the product", (("fuse_bias", "fuse_activation"), False, False)),
    ("fuse_pad", "allow_fuse_pad_to_conv", (("fuse_pad",), False, False)),
    ("fuse_add", "batch norm, addition and relu in the convolution", (("fuse_convolution",), False, False)),
    ("packed", "enable_pack_weights", ((), True, False)),
    ("amp", "enable_amp", ((), False, True)),
]


def factor(below, above, sizes, rounds, seconds):
    """Times per image of two sides in turn, in ms, and their spread."""
    times = [[t / n * 1e3 for t in side] for side, n in zip(measure([below, above], rounds, seconds), sizes)]
    return *(statistics.median(t) for t in times), max(map(spread, times))


def climb(options):
    """Lines of the ladder: (name, what is new, ms per image below, ms per image, spread)."""
    tiny, how = options.tiny, (options.rounds, 0.01 if options.tiny else 0.5)
    lines = []
    for (_, _, below, n), (name, new, above, m) in zip(RUNGS, RUNGS[1:]):
        lines.append((name, new, *factor(below(n, tiny), above(m, tiny), (n, m), *how)))
    first, last = RUNGS[0], RUNGS[-1]
    lines.append(("whole", "the first beside the last", *factor(first[2](1, tiny), last[2](16, tiny), (1, 16), *how)))
    return lines


def ablation(options):
    tiny, how, n = options.tiny, (options.rounds, 0.01 if options.tiny else 0.5), 16
    lines = []
    for name, what, (passes, packed, amp) in SWITCHES:
        sides = Side(graph, ONCE, n, False, False, tiny), Side(graph, (*ONCE, *passes), n, packed, amp, tiny)
        lines.append((f"switch.{name}", what, *factor(*sides, (n, n), *how)))
    return lines


def tables(ladder, switches):
    yield f"ResNet-101, {THREADS} threads; ms per image, each rung beside the one below it\n"
    yield "| rung | what is new | below | here | factor | so far | images/s |\n|---|---|---:|---:|---:|---:|---:|"
    yield f"| {RUNGS[0][0]} | {RUNGS[0][1]} | | {ladder[0][2]:.2f} | 1 | 1 | {1e3 / ladder[0][2]:.1f} |"
    product = 1.0
    for name, new, below, here, _ in ladder[:-1]:
        product *= below / here
        yield f"| {name} | {new} | {below:.2f} | {here:.2f} | {below / here:.2f} | {product:.2f} | {1e3 / here:.1f} |"
    name, new, below, here, _ = ladder[-1]
    yield f"| {name} | {new} | {below:.2f} | {here:.2f} | {below / here:.2f} | | {1e3 / here:.1f} |"
    yield "\nOne option at a time, beside the rung \"batch\"\n\n| option | what it does | without | with | factor |\n|---|---|---:|---:|---:|"
    for name, what, below, here, _ in switches:
        yield f"| {name.removeprefix('switch.')} | {what} | {below:.2f} | {here:.2f} | {below / here:.2f} |"


def draw(ladder, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names, speed = [RUNGS[0][0]], [1.0]
    for name, _, below, here, _ in ladder[:-1]:
        names.append(name)
        speed.append(speed[-1] * below / here)
    figure, axes = pyplot.subplots(figsize=(8, 4))
    bars = axes.bar(names, speed, color=["#999999"] + ["#3b7dd8"] * (len(names) - 1))
    axes.bar_label(bars, [f"{s:.2f}" for s in speed])
    axes.set_ylabel("images per second, PyTorch eager = 1")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", nargs="?", default="ladder.", help="benchmarks/run.py asks for lines by it")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side of a pair (default 5)")
    parser.add_argument("--tiny", action="store_true", help="a small net, to see that it works")
    parser.add_argument("--target-qps", type=float, help="images per second that the last rung must reach; else the exit status is 3")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out/ladder", help="where the table and the picture go")
    options = parser.parse_args()
    ladder, switches = climb(options), ablation(options)
    for name, what, below, here, noise in [*ladder, *switches]:
        report(f"ladder.{name}", here, below, f"without: {what}" if name != "whole" else "PyTorch eager", "ms/image", options.rounds,
               noise)
    options.out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(tables(ladder, switches)) + "\n"
    (options.out / "ladder.md").write_text(text)
    draw(ladder, options.out / "ladder.png")
    print(text, f"{options.out}/ladder.png", sep="\n", file=sys.stderr)
    speed = 1e3 / ladder[-1][3]
    if options.target_qps is not None:
        met = speed >= options.target_qps
        print(f"target of {options.target_qps:g} images/s: {'met' if met else 'missed'} by {speed:.1f}", file=sys.stderr)
        sys.exit(0 if met else 3)


if __name__ == "__main__":
    main()
