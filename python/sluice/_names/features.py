"""features(): what there is, and how far it may be relied on."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

STAGES = {"Pre-alpha": "may change or go without notice, and parts are missing",
          "Alpha": "works as described; names and arguments may change with any release",
          "Beta": "names and arguments change only with a note in CHANGELOG.md; rarely used ways to use it may be wrong",
          "RC": "is meant to stay as it is, and waits for more users",
          "Stable": "stays: what runs now runs with later releases"}


class Feature(NamedTuple):
    """A feature: its stage, what it is, the public names it consists of, and the page that describes it."""

    name: str
    stage: str
    what: str
    names: tuple[str, ...]
    page: str


class Features(list[Feature]):
    """A list that prints as a table."""

    def __repr__(self) -> str:
        width = max([len(f.name) for f in self] or [0])
        return "\n".join(f"{f.name:<{width}}  {f.stage:<9}  {f.what}" for f in self)


def _feature(name: str, stage: str, what: str, names: str, page: str) -> Feature:
    return Feature(name, stage, what, tuple(names.split()), f"docs/{page}.md")


_TORCH, _GRAPH, _DATA, _SAVE = "migrating-from-pytorch", "graphs-and-plans", "data", "save-and-load"
TABLE = (
    _feature("eager tensors", "Beta", "torch's tensors, functions and in-place methods", "Tensor tensor from_numpy einsum", _TORCH),
    _feature("autograd", "Beta", "gradients of any order, hooks, autograd.Function", "autograd.grad autograd.Function no_grad", _TORCH),
    _feature("function transforms", "Alpha", "grad, vjp, jvp, vmap, hessian of functions", "func.grad func.vmap vmap", _TORCH),
    _feature("modules", "Beta", "torch.nn: layers, losses, init, parametrizations", "nn.Module nn.functional nn.init nn.utils", _TORCH),
    _feature("optimizers", "Beta", "torch.optim and more, eager and in plans", "optim.Optimizer optim.AdamW optim.LAMB", "optimizers"),
    _feature("schedules", "Beta", "of learning rates, eager and in plans", "optim.lr_scheduler.LRScheduler", "optimizers"),
    _feature("mixed precision", "Alpha", "autocast and GradScaler, eager and in plans", "autocast amp.GradScaler", _TORCH),
    _feature("distributions", "Alpha", "torch.distributions", "distributions.Normal distributions.kl_divergence", _TORCH),
    _feature("checkpoints", "Beta", "files of torch and safetensors, read and written", "save load utils.safetensors", _SAVE),
    _feature("import torch is Sluice", "Alpha", "other people's packages on Sluice", "mock_torch.enable", _TORCH),
    _feature("graphs", "Beta", "nn.Graph: a step with its gradients and updates as one plan", "nn.Graph lower", _GRAPH),
    _feature("graphs of functions", "Alpha", "Graph.trace", "nn.Graph.trace", _TORCH),
    _feature("compile", "Alpha", "functions and modules as plans, with their backward passes", "compile compiler.explain", "compile"),
    _feature("state of graphs", "Alpha", "state_dict of all that the next steps depend on", "nn.Graph.state_dict", _SAVE),
    _feature("eager graphs", "Alpha", "set_mode('eager') runs graphs op by op", "set_mode get_mode", "diagnostics"),
    _feature("sparse updates", "Alpha", "steps that touch the rows a batch has looked up", "nn.Graph.add_optimizer", "optimizers"),
    _feature("several sizes", "Alpha", "plans by shape, and families by named dims", "Dim nn.Graph.with_dynamic_input_shape", "architecture"),
    _feature("plans that fit, and plans on disk", "Alpha", "budgets, what is computed again, caches of plans and kernels",
             "cache.stats utils.checkpoint.checkpoint", "memory-and-caches"),
    _feature("branches", "Alpha", "cond: one of two branches of a plan runs", "cond", "architecture"),
    _feature("loops", "Alpha", "scan and while_loop: bodies that a plan runs turn by turn", "scan while_loop", "loops"),
    _feature("micro-batches", "Beta", "gradient accumulation and pipelines in plans", "nn.Graph.try_call", "pipelines"),
    _feature("host functions", "Beta", "Python functions and generators as actors", "host_function EndOfData", _DATA),
    _feature("data loading", "Beta", "utils.data with processes as workers", "utils.data.DataLoader", _DATA),
    _feature("input pipelines", "Alpha", "files to batches in plans: order, decoding, augmenting, bad files, places",
             "data.images data.tar data.records data.Pipeline data.serve data.remote data.Limiter", "input-pipelines"),
    _feature("shared and donated memory", "Alpha", "graphs that share arenas; inputs whose memory results take", "SharedArenas", "embedding"),
    _feature("asynchronous calls", "Beta", "calls that return at once, run_async, streams of ops", "nn.Graph.run_async stream", _GRAPH),
    _feature("debugging of plans", "Beta", "debug(), check_numerics, traces, counters, plan-viz",
             "nn.Graph.debug info.describe set_log", "diagnostics"),
    _feature("global tensors", "Alpha", "placement and sbp: graphs over several devices", "placement sbp.split", "placement"),
    _feature("data parallel", "Alpha", "DistributedDataParallel, ZeRO, collectives",
             "nn.parallel.DistributedDataParallel distributed.all_reduce", "distributed"),
    _feature("processes and shared memory", "Alpha", "tensors between processes", "multiprocessing.spawn", _DATA),
    _feature("bundles", "Beta", "saved graphs that run in C++, C and Python", "save load_graph save_graph", _SAVE),
    _feature("ops and devices of one's own", "Alpha", "libraries that are loaded at run time", "ops", "custom-ops"),
    _feature("GPUs", "Pre-alpha", "NVIDIA GPUs by the CUDA backend; checked on a driver without a GPU, and once on an H100",
             "cuda.is_available backends.cuda", "devices"),
)


def features() -> Features:
    """All features with their stages, as a list of (name, stage, what, names, page) that prints as a table."""
    return Features(TABLE)


def find(name: str) -> Any:
    """The object that a public name of Sluice stands for; AttributeError where there is none."""
    thing: Any = importlib.import_module("sluice")
    for part in name.split("."):
        thing = getattr(thing, part)
    return thing


def page() -> str:
    """docs/stages.md."""
    lines = ["# Stages of features", "",
             "A stage says how far you can rely on a feature. `sluice.features()` gives the same table; `python -m sluice._names.features` "
             "writes this page.", "",
             "| stage | a feature of this stage |", "|---|---|"]
    lines += [f"| {stage} | {means} |" for stage, means in STAGES.items()]
    lines += ["", "| feature | stage | what it is | names | page |", "|---|---|---|---|---|"]
    for f in TABLE:
        names, file = " ".join(f"`{n}`" for n in f.names), f.page.removeprefix("docs/")
        lines.append(f"| {f.name} | {f.stage} | {f.what} | {names} | [{file}]({file}) |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
