"""mesh.*: a step of training of a small GPT on ranks of one thread each: data, tensor and pipeline parallel by two, and all three
on eight ranks, against torch over Gloo; what of the communication is behind computing; plans for up to 4,096 devices on paper."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from common import measure, report, spread, wanted
from data_parallel import Ranks

BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", pathlib.Path(__file__).resolve().parent.parent / "build/release"))

LAYERS, WIDTH, HEADS, LENGTH, VOCABULARY = 4, 256, 8, 64, 512
BATCH, MICRO = 16, 4  # sequences of a step; micro-batches where there is a pipeline
MESHES = {"dp2": dict(dp=2), "tp2": dict(tp=2), "pp2": dict(pp=2), "2x2x2": dict(pp=2, dp=2, tp=2)}
PLAN = {"layers.*.q": "colwise", "layers.*.k": "colwise", "layers.*.v": "colwise", "layers.*.out": "rowwise",
        "layers.*.up": "colwise", "layers.*.down": "rowwise"}


def data():
    rows = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, LENGTH + 1))
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def modules(torch):
    """The classes of the model in either library."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

        def forward(self, x):
            n, length = x.shape[0], x.shape[1]

            def split(t):  # of torch's tensor parallel, this rank's heads
                return t.reshape(n, length, -1, WIDTH // HEADS).transpose(1, 2)

            h = self.norm1(x)
            a = nn.functional.scaled_dot_product_attention(split(self.q(h)), split(self.k(h)), split(self.v(h)), is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(n, length, -1))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(VOCABULARY, WIDTH)
            self.layers = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, ids):
            x = self.table(ids)
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    class Part(nn.Module):
        """A stage of torch's pipeline."""

        def __init__(self, whole, stage, stages):
            super().__init__()
            each = LAYERS // stages
            self.table = whole.table if stage == 0 else None
            self.layers = nn.ModuleList(list(whole.layers)[stage * each:(stage + 1) * each])
            self.norm, self.head = (whole.norm, whole.head) if stage == stages - 1 else (None, None)

        def forward(self, x):
            if self.table is not None:
                x = self.table(x)
            for layer in self.layers:
                x = layer(x)
            return x if self.head is None else self.head(self.norm(x))

    return Gpt, Part


def torch_rank(rank, size, port, sizes):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    torch.set_num_threads(1)
    # A device mesh has groups of its own, which need the store of the environment.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    torch.manual_seed(0)
    Gpt, Part = modules(torch)
    model = Gpt()
    at = {axis: mesh.get_local_rank(axis) for axis in sizes}
    dp, pp = sizes.get("dp", 1), sizes.get("pp", 1)
    if pp > 1:
        model = Part(model, at["pp"], pp)
    if "tp" in sizes:
        words = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
        for layer in model.layers:
            parallelize_module(layer, mesh["tp"], {name.removeprefix("layers.*."): words[word]() for name, word in PLAN.items()})
    ids, classes = (torch.tensor(rows) for rows in data())
    if dp > 1:
        ids, classes = ids.chunk(dp)[at["dp"]], classes.chunk(dp)[at["dp"]]
    if sizes == MESHES["dp2"]:
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def loss_of(logits, target):
        return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), target.reshape(-1))

    def average():  # DistributedDataParallel takes no parameters in parts: one vector of all gradients
        grads = [getattr(p.grad, "_local_tensor", p.grad) for p in model.parameters() if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in grads])
        torch.distributed.all_reduce(flat, group=mesh.get_group("dp"))
        for g, part in zip(grads, flat.div_(dp).split([g.numel() for g in grads])):
            g.copy_(part.view_as(g))

    schedule = None
    if pp > 1:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        stage = PipelineStage(model, at["pp"], pp, torch.device("cpu"), group=mesh.get_group("pp"))
        schedule = Schedule1F1B(stage, MICRO, loss_fn=loss_of)

    def run(n):
        for _ in range(n):
            optimizer.zero_grad()
            if schedule is None:
                loss_of(model(ids), classes).backward()
            else:
                first, last = at["pp"] == 0, at["pp"] == pp - 1
                schedule.step(*((ids,) if first else ()), **({"target": classes, "losses": []} if last else {}))
            if dp > 1 and sizes != MESHES["dp2"]:
                average()
            optimizer.step()
    return run


def sluice_graph(rank, size, port, sizes):
    os.environ["SLUICE_CORES"] = "1"
    import sluice as sl
    import sluice.distributed as dist
    from sluice import parallel
    if size > 1:
        dist.init(rank=rank, world_size=size, master=f"127.0.0.1:{port}", token="benchmark")
    sl.manual_seed(0)
    Gpt, _ = modules(sl)
    model, mesh = Gpt(), parallel.mesh("cpu", **sizes)
    plan = PLAN if "tp" in sizes else None
    parallel.parallelize(model, mesh, plan, **({"pp_plan": ["layers"]} if "pp" in sizes else {}))
    stages = parallel.stages(mesh) if "pp" in sizes else [mesh]

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.config.set_cores(1)
            if "pp" in sizes:
                self.config.set_gradient_accumulation_steps(MICRO)
            self.add_optimizer(sl.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))

        def build(self, ids, classes):
            logits = self.model(ids)
            loss = sl.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), classes.reshape(-1))
            loss.backward()
            return loss

    way = sl.sbp.split(0)

    def laid(rows, stage):  # each rank has its own rows where batches are split
        whole = sl.tensor(rows).to_global(stage, sl.sbp.broadcast)
        return whole.to_global(stage, {"dp": way}) if "dp" in sizes else whole

    ids, classes = data()
    return Train(), laid(ids, stages[0]), laid(classes, stages[-1])


def sluice_rank(rank, size, port, sizes):
    graph, ids, classes = sluice_graph(rank, size, port, sizes)

    def run(n):
        for _ in range(n):
            losses = graph(ids, classes)
        losses.numpy()
    return run


def traced_rank(rank, size, port, sizes, path):
    """Leaves in `path` what of the time that collectives took this rank computed as well, once a step has run."""
    graph, ids, classes = sluice_graph(rank, size, port, sizes)
    graph.config.enable_trace()

    def run(n):
        for _ in range(n):
            losses = graph(ids, classes)
        losses.numpy()
        talks, works = traced_lanes(graph)
        if rank == 0 and talks:
            pathlib.Path(path).write_text(json.dumps(
                {"communication": covered(talks), "behind": covered(talks) + covered(works) - covered(talks + works)}))
    return run


def traced_lanes(graph):
    """The kernels of a traced graph since the last time: those on streams of collectives, and the others."""
    with tempfile.TemporaryDirectory() as folder:
        graph.save_trace(f"{folder}/trace.json")
        events = json.loads(pathlib.Path(f"{folder}/trace.json").read_text())["traceEvents"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    kernels = [e for e in events if e["ph"] == "X" and e["cat"] == "kernel"]
    talks = [e for e in kernels if "collective" in lanes[e["pid"], e["tid"]]]
    return talks, [e for e in kernels if "collective" not in lanes[e["pid"], e["tid"]]]


def covered(events):
    """Microseconds in which at least one of them lasts."""
    total, until = 0.0, float("-inf")
    for e in sorted(events, key=lambda e: e["ts"]):
        total += max(0.0, e["ts"] + e["dur"] - max(e["ts"], until))
        until = max(until, e["ts"] + e["dur"])
    return total


def compare(name, sizes, peer):
    size = int(np.prod(list(sizes.values())))
    rounds = 5 if size > 2 else 7
    ours, theirs = measure([Ranks(sluice_rank, sizes, size=size), Ranks(torch_rank, sizes, size=size)], rounds)
    report(f"mesh.{name}", statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3, peer, "ms", rounds,
           max(spread(ours), spread(theirs)))


def overlap(name, sizes):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "overlap.json")
        sides = Ranks(traced_rank, sizes, path, size=int(np.prod(list(sizes.values()))))
        shares = []
        for _ in range(6):
            sides.time(4)
            facts = json.loads(pathlib.Path(path).read_text())
            shares.append(100 * facts["behind"] / facts["communication"])
        sides.close()
    shares = shares[1:]  # the first compiles
    report(f"mesh.{name}.overlap", statistics.median(shares), None, "none", "% of collectives' time in which kernels run", len(shares),
           spread(shares) if statistics.median(shares) > 0 else 0.0)


def scale(ranks):
    """Seconds to compile, verify and simulate a plan of classes of ranks."""
    facts = [json.loads(subprocess.check_output([BUILD / "benchmarks/mesh_scale", str(ranks)])) for _ in range(3)]
    seconds = [one["total_s"] for one in facts]
    middle = sorted(facts, key=lambda one: one["total_s"])[1]
    report(f"mesh.scale.{ranks}", middle["total_s"], None, "none", "s to compile, verify and simulate", len(facts), spread(seconds),
           **{key: middle[key] for key in ("compile_s", "verify_s", "simulate_s", "peak_mb", "kernels", "step_ms")})


if __name__ == "__main__":
    peers = {"dp2": "torch DDP, gloo", "tp2": "torch DTensor, gloo", "pp2": "torch Schedule1F1B, gloo",
             "2x2x2": "torch Schedule1F1B with DTensor, gloo"}
    for case, sizes in MESHES.items():
        if wanted(f"mesh.{case}") and (len(sys.argv) < 2 or not sys.argv[1].endswith(".overlap")):
            compare(case, sizes, peers[case])
        if wanted(f"mesh.{case}.overlap") and case in ("dp2", "2x2x2"):
            overlap(case, sizes)
    for ranks in (8, 64, 512, 4096):
        if wanted(f"mesh.scale.{ranks}"):
            scale(ranks)
