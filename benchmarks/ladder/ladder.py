#!/usr/bin/env python3
"""The ladder: what each step from an eager program to a compiled one is worth, from one run.

All rungs are measured in turn, each in a process of its own; the factor of a rung is the ratio of the one below to it, in
median times per image, and their product is the whole ladder's. The second table switches options one at a time, and the
third has other libraries compute, measured in turn as well. Writes out/ladder/ladder.md and ladder.png. On two cores that
nobody else uses it takes some minutes, and says how far it is.
"""
import argparse
import contextlib
import io
import os
import pathlib
import statistics
import sys
import time

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


def eager(library, batch, side):
    task = program(library)
    task["torch"].set_num_threads(THREADS)
    net, x = task["classifier"](side == TINY), task["images"](batch, side)

    def run(steps):
        for _ in range(steps):
            result = task["step"](net, x)
        result[2].tolist()  # all of it is there
    return run


def graph_of(passes, batch, side, packed=True, search=False, amp=False, backend=None):
    """The task as an nn.Graph as it is by default, but of the compiler's passes with `passes` alone, beside those that every plan
    needs; and its images."""
    import sluice

    task = program("sluice")

    class Look(sluice.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = task["classifier"](side == TINY)
            self.config.set_cores(THREADS)
            self.config.set_optimization_level(0)
            self.config.enable_pack_weights(packed)
            self.config.enable_kernel_trial_run(search)
            for name in passes:
                self.config.enable_pass(name)
            if amp:
                self.config.enable_amp()
            if backend is not None:
                self.config.enable_backend(backend)

        def build(self, x):
            return task["look"](self.net, x)

    return Look(), task["images"](batch, side).requires_grad_()


def graph(options, batch, side):
    look, x = graph_of(batch=batch, side=side, **options)
    with contextlib.redirect_stderr(io.StringIO()):  # the tables of all searches
        look.compile(x)

    def run(steps):
        for _ in range(steps):
            result = look(x)
        result[2].tolist()
    return run


TINY = 32  # pixels of the small net's images
PRUNED = ("dead_code",)
ONCE = (*PRUNED, "simplify", "common_subexpressions", "fold_constants")
FUSED = (*ONCE, "fuse_bias", "fuse_activation", "fuse_pad", "fuse_convolution", "fuse_elementwise")

# (name, what is new, how it runs, images at a time)
RUNGS = [
    ("eager", "PyTorch, eager", (eager, "torch"), 1),
    ("import", "the import changed", (eager, "sluice"), 1),
    ("graph", "nn.Graph, nothing left out", (graph, dict(passes=())), 1),
    ("pruned", "unread gradients of weights left out", (graph, dict(passes=PRUNED)), 1),
    ("once", "the second forward pass left out", (graph, dict(passes=ONCE)), 1),
    ("batch", "16 images at a time", (graph, dict(passes=ONCE)), 16),
    ("amp", "bfloat16", (graph, dict(passes=ONCE, amp=True)), 16),
    ("fused", "ops fused", (graph, dict(passes=FUSED, amp=True)), 16),
    ("search", "the fastest implementation of each convolution", (graph, dict(passes=FUSED, amp=True, search=True)), 16),
]
BATCH = dict(passes=ONCE)
# Beside the rung "batch", one at a time: (name, what it does, without it, with it).
SWITCHES = [
    ("amp", "enable_amp", BATCH, dict(passes=ONCE, amp=True)),
    ("search", "enable_kernel_trial_run", BATCH, dict(passes=ONCE, search=True)),
    ("fuse_add", "batch norm, addition and relu in the convolution", BATCH, dict(passes=(*ONCE, "fuse_convolution"))),
    ("fuse_pad", "allow_fuse_pad_to_conv", BATCH, dict(passes=(*ONCE, "fuse_pad"))),
    ("packed", "enable_pack_weights, as by default", dict(passes=ONCE, packed=False), BATCH),
]
# Beside the rung "fused" without bfloat16: (name, what computes, with it).
PLAIN = dict(passes=FUSED)
BACKENDS = [("onednn_graph", "partitions of oneDNN Graph", dict(passes=FUSED, backend="onednn_graph"))]


def measured(what, ways, options):
    """[(ms per image, spread)] of (how it runs, images at a time), all in turn."""
    begin = time.perf_counter()

    def told(text):
        print(f"ladder: {time.perf_counter() - begin:.0f} s: {what}: {text}", file=sys.stderr, flush=True)

    sides = []
    for (make, how), batch in ways:
        sides.append(Side(make, how, batch, options.side))
        told(f"{len(sides)} of {len(ways)} have started")
    times = measure(sides, options.rounds, options.seconds, told)
    return [(statistics.median(t) / n * 1e3, spread(t)) for t, (_, n) in zip(times, ways)]


def climb(options):
    """Lines of the ladder: (name, what is new, ms per image below, ms per image, spread)."""
    times = measured("rungs", [rung[2:] for rung in RUNGS], options)
    lines = [(name, new, below[0], here[0], max(below[1], here[1]))
             for (name, new, *_), below, here in zip(RUNGS[1:], times, times[1:])]
    (first, noise), (last, more) = times[0], times[-1]
    return [*lines, ("whole", "the last instead of the first", first, last, max(noise, more))]


def ablation(options):
    ways: list[dict] = []
    for *_, without, having in SWITCHES:
        ways += [how for how in (without, having) if how not in ways]
    times = measured("options", [((graph, how), 16) for how in ways], options)

    def line(name, what, without, having):
        (below, noise), (here, more) = times[ways.index(without)], times[ways.index(having)]
        return f"switch.{name}", what, below, here, max(noise, more)

    return [line(*switch) for switch in SWITCHES]


def difference(side, having):
    """By how much the results of the task differ from those of our own kernels, over the largest of each."""
    results = []
    for options in (PLAIN, having):
        with contextlib.redirect_stderr(io.StringIO()):
            look, x = graph_of(batch=2, side=side, **options)
            results.append([part.detach().numpy() for part in look(x)])
    return max(float(abs(a - b).max() / abs(a).max()) for a, b in zip(*results, strict=True))


def alternatives(options):
    """Lines of the table of backends: (name, what computes, ms per image without, with, spread, difference)."""
    times = measured("backends", [((graph, how), 16) for how in (PLAIN, *(how for *_, how in BACKENDS))], options)
    (below, noise), *others = times
    return [(f"backend.{name}", what, below, here, max(noise, more), difference(options.side, how))
            for (name, what, how), (here, more) in zip(BACKENDS, others, strict=True)]


def tables(ladder, switches, backends, side):
    net = "A small ResNet" if side == TINY else "ResNet-101"
    yield f"{net}, {side} x {side}, {THREADS} threads, {time.strftime('%Y-%m-%d')}; ms per image\n"
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
    yield "\nOther libraries in the place of our kernels\n"
    yield "| backend | what computes | without | with | factor | largest difference |\n|---|---|---:|---:|---:|---:|"
    for name, what, below, here, _, apart in backends:
        yield f"| {name.removeprefix('backend.')} | {what} | {below:.2f} | {here:.2f} | {below / here:.2f} | {apart:.1e} |"


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
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each rung (default 5)")
    parser.add_argument("--side", type=int, default=128, help="pixels of a side of the images (default 128)")
    parser.add_argument("--tiny", action="store_true", help="a small net and small images, to see that it works")
    parser.add_argument("--target-qps", type=float, help="images per second that the last rung must reach; else the exit status is 3")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out/ladder", help="where the table and the picture go")
    options = parser.parse_args()
    if options.side < 2 * TINY:
        parser.error(f"--side: got {options.side}; must be at least {2 * TINY}")
    options.side, options.seconds = (TINY, 0.01) if options.tiny else (options.side, 0.3)
    ladder, switches, backends = climb(options), ablation(options), alternatives(options)
    for name, what, below, here, noise in [*ladder, *switches]:
        report(f"ladder.{name}", here, below, f"without: {what}" if name != "whole" else "PyTorch eager", "ms/image", options.rounds,
               noise)
    for name, what, below, here, noise, apart in backends:
        report(f"ladder.{name}", here, below, f"without: {what}", "ms/image", options.rounds, noise, difference=apart)
    options.out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(tables(ladder, switches, backends, options.side)) + "\n"
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
