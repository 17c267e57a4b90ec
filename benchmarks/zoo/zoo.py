#!/usr/bin/env python3
"""zoo.STYLE.NET: training steps of small models in the styles of timm, TorchBench and transformers, compiled, against
PyTorch eager.

A model is written once, for PyTorch; Sluice gets it through `sluice.mock_torch`. It works if the losses of three steps by
`sluice.compile` are those of eager steps, by Sluice and by PyTorch. `zoo.all` says how many of all models work, in percent;
its ratio is the geometric mean of theirs. Writes the table to out/zoo.md.
"""
import argparse
import contextlib
import importlib
import math
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PATHS = [str(HERE), str(HERE.parent), str(HERE.parent / "gpu")]
sys.path[:0] = PATHS
from common import Side, measure, report, spread  # noqa: E402

THREADS = len(os.sched_getaffinity(0))
STYLES = ("timm", "torchbench", "transformers")
WAYS = {"PyTorch eager": ("torch", "eager"), "Sluice eager": ("sluice", "eager"), "compiled": ("sluice", "compiled"),
        "graph": ("sluice", "graph")}
TOLERANCE = 1e-3  # of a loss, relative: sums round otherwise, and steps build on each other


def models(styles=STYLES):
    """(style, name) of all models."""
    return [(style, model.__name__) for style in styles for model in importlib.import_module(f"{style}_models").MODELS]


def made(library, style, name):
    """(net, inputs, targets, loss of the answer) on `library`; a seed gives both libraries the same numbers."""
    with contextlib.nullcontext() if library.__name__ == "torch" else library.mock_torch(lazy=True):
        library.manual_seed(0)
        return getattr(importlib.import_module(f"{style}_models"), name)()


class Training:
    """SGD with momentum on a model: `step()` returns the loss."""

    def __init__(self, way, style, name):
        library, how = WAYS[way]
        lib = importlib.import_module(library)
        net, inputs, targets, loss_of = made(lib, style, name)
        sgd = lib.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
        self.net = lib.compile(net) if how == "compiled" else net
        self._given, self._lib = (*inputs, *targets), lib

        def step(*given):
            sgd.zero_grad()
            loss = loss_of(self.net(*given[:len(inputs)]), *given[len(inputs):])
            loss.backward()
            sgd.step()
            return loss

        self._step = lib.nn.Graph.trace(step, state=[net, sgd]) if how == "graph" else step

    def step(self):
        return self._step(*self._given)

    def eager_calls(self):
        """Calls of a compiled net that were not."""
        return self._lib.compile.stats(self.net)["eager_calls"]


def losses(way, style, name, steps=3):
    training = Training(way, style, name)
    return [training.step().item() for _ in range(steps)]


def verdict(style, name, steps=3):
    """Why a compiled model does not work, or nothing; and how many calls of it ran eagerly, but for modules within."""
    try:
        training = Training("compiled", style, name)
        ours = [training.step().item() for _ in range(steps)]
        for way in ("Sluice eager", "PyTorch eager"):
            theirs = losses(way, style, name, steps)
            if not all(math.isclose(a, b, rel_tol=TOLERANCE) for a, b in zip(ours, theirs, strict=True)):
                return f"losses are {ours}, but {theirs} by {way}", training.eager_calls()
        return "", training.eager_calls()
    except Exception as error:
        return f"{type(error).__name__}: {error}", 0


def side(way, style, name):
    importlib.import_module(WAYS[way][0]).set_num_threads(THREADS)
    training = Training(way, style, name)

    def run(steps):
        for _ in range(steps):
            loss = training.step()
        loss.item()
    return run


def is_graph(style, name):
    """Whether a whole step can be traced: what data decides about cannot."""
    try:
        losses("graph", style, name, steps=1)
    except RuntimeError:
        return False
    return True


def timed(style, name, rounds, seconds):
    """Milliseconds of a step by way, and the largest spread."""
    ways = [way for way in WAYS if way != "graph" or is_graph(style, name)]
    times = measure([Side(side, way, style, name) for way in ways], rounds, seconds)
    return {way: statistics.median(t) * 1e3 for way, t in zip(ways, times)}, max(map(spread, times))


def mean_factor(results, way, over):
    """The geometric mean of how much faster `way` is than `over`, of the models that work."""
    found = [times[over] / times[way] for _, times, _ in results if times and way in times]
    return statistics.geometric_mean(found) if found else math.nan


def works(results):
    return 100 * sum(bool(times) for _, times, _ in results) / len(results)


def table(results):
    """`results`: (name, milliseconds by way, or None if it does not work; how or why)."""
    date = time.strftime("%Y-%m-%d")
    yield f"Training steps of {len(results)} models, {THREADS} threads, {date}; ms, and over PyTorch eager\n"
    yield "| model | " + " | ".join(WAYS) + " | works | compiled | graph |\n|---|" + "---:|" * (len(WAYS) + 3)
    for name, times, how in results:
        if times:
            cells = [f"{times[way]:.2f}" if way in times else "" for way in WAYS]
            faster = [f"{times['PyTorch eager'] / times[way]:.2f}" if way in times else "" for way in ("compiled", "graph")]
            yield f"| {name} | {' | '.join(cells)} | {how} | {' | '.join(faster)} |"
        else:
            yield f"| {name} |" + " |" * len(WAYS) + f" no: {how} | | |"
    means = (f"{mean_factor(results, way, 'PyTorch eager'):.2f}" for way in ("compiled", "graph"))
    yield "| geometric mean |" + " |" * len(WAYS) + f" {works(results):.0f}% | {' | '.join(means)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", nargs="?", default="zoo.", help="only models whose names start so")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each way (default 5)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of each measurement (default 0.1)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out", help="where the table goes")
    options = parser.parse_args()
    every = "zoo.all".startswith(options.prefix)
    results = []
    wanted = [s for s in STYLES if every or f"zoo.{s}.".startswith(options.prefix) or options.prefix.startswith(f"zoo.{s}.")]
    for style, model in models(wanted):
        name = f"zoo.{style}.{model}"
        if not every and not name.startswith(options.prefix):
            continue
        why, eager_calls = verdict(style, model)
        times, noise = (None, 0.0) if why else timed(style, model, options.rounds, options.seconds)
        results.append((f"{style}.{model}", times, why or ("in pieces" if eager_calls else "yes")))
        report(name, times and times["compiled"], times and times["PyTorch eager"], "PyTorch eager", "ms", options.rounds,
               noise,
               also={"does not work": why} if why else times | {"eager calls": eager_calls})
    if not results:
        return
    if every:
        report("zoo.all", works(results), None, "of the ratio: PyTorch eager", f"% of {len(results)} models work",
               len(results), 0.0,
               mean_factor(results, "compiled", "PyTorch eager"),
               also={f"{way}, over {over}": mean_factor(results, way, over)
                     for way in ("compiled", "graph") for over in ("PyTorch eager", "Sluice eager")})
    text = "\n".join(table(results)) + "\n"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "zoo.md").write_text(text)
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
