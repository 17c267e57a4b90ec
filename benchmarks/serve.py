"""serve.*: sluice-serve under sluice-perf, beside peers, each in turn: torch and ONNX Runtime behind FastAPI and uvicorn
(serve_peer.py), and a server of Beast's that gives bodies back (serve_beast.cpp).

The Python peers are those of requirements-bench.txt; where they are not installed, their columns are empty.
"""
import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from common import report, spread, wanted
from serve_nets import SHAPES, net_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))
THREADS = len(os.sched_getaffinity(0))
PYTHON_PEERS = {"": "torch", ".onnxruntime": "onnxruntime"}  # what follows a line's name: who runs the net
ROUNDS = 5


def installed(by):
    needs = ("fastapi", "uvicorn", "uvloop", "httptools", *(("onnxruntime", "onnx") if by == "onnxruntime" else ()))
    return all(importlib.util.find_spec(name) for name in needs)


def save(repository, name, cores=THREADS, config=None, net=None, shape=None, dims=None):
    import sluice as sl

    class Infer(sl.nn.Graph):
        def __init__(self):
            super().__init__(name=name)
            self.net = (net or net_of(sl, name)).eval()
            self.config.set_cores(cores)
            if dims:
                self.config.set_dims({"x": dims})

        def build(self, x):
            return self.net(x)

    graph = Infer()
    with sl.no_grad():
        graph(sl.zeros(*(shape or SHAPES[name])))
    folder = repository / name / "1" / "model"
    folder.parent.mkdir(parents=True)
    sl.save(graph, folder)
    if config:
        (repository / name / "config.pbtxt").write_text(config)


@contextlib.contextmanager
def ours(repository, *arguments):
    server = subprocess.Popen([BUILD / "tools/sluice-serve", "--model-repository", repository, *"--http-port 0 --grpc-port 0 --metrics-port 0".split(),
                               "--log-info", "false", *arguments], stdout=subprocess.PIPE, text=True)
    port = None
    for line in server.stdout:
        if line.startswith("http "):
            port = line.split()[1].rpartition(":")[2]
        if line.startswith("ready"):
            break
    yield port
    server.send_signal(signal.SIGTERM)
    server.wait()


@contextlib.contextmanager
def other(*command):
    """A peer's server; gives its port, which it prints."""
    server = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
    yield server.stdout.readline().strip()
    server.kill()
    server.wait()


def python_peer(net, threads, by):
    return other(sys.executable, ROOT / "benchmarks/serve_peer.py", net, threads, by)


def beast(net):
    return other(BUILD / "benchmarks/serve_beast", net, "INPUT_0:FP32:" + ",".join(map(str, SHAPES[net])))


def load(port, *arguments, seconds=1.0):
    """The levels that sluice-perf measures, one window each."""
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run([BUILD / "tools/sluice-perf", "-u", f"127.0.0.1:{port}", *arguments, "--warmup-secs", "0.3", "--windows", "1",
                               "--max-windows", "1", "--window-secs", str(seconds), "--json", out.name, "--no-progress"],
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        return json.loads(pathlib.Path(out.name).read_text())["levels"]


def median(levels, *path):
    values = []
    for level in levels:
        for key in path:
            level = level[key]
        values.append(level)
    return statistics.median(values)


def compare(name, sides, arguments, aims, seconds=1.0):
    """Rounds in turn of ours and of the peers that `aims` names by what follows the line's name; a line for each of them."""
    sides = {side: sides[side] for side in (None, *aims) if side in sides}
    rounds = [[load(port, *arguments, seconds=seconds)[-1] for _, port in sides.values()] for _ in range(ROUNDS)]
    levels = dict(zip(sides, zip(*rounds)))
    rates = {side: [level["throughput_per_s"] for level in of_side] for side, of_side in levels.items()}
    mine = statistics.median(rates[None])
    also = {"p50_us": median(levels[None], "latency_us", "p50"), "p99_us": median(levels[None], "latency_us", "p99"),
            "errors": sum(sum(level["errors"].values()) for of_side in levels.values() for level in of_side)}
    for side, aim in aims.items():
        if not wanted(name + side):
            continue
        if side not in sides:
            report(name + side, mine, None, "not installed", "requests/s", ROUNDS, spread(rates[None]), also=also)
            continue
        theirs = statistics.median(rates[side])
        more = {"aim": aim, "peer_p50_us": median(levels[side], "latency_us", "p50"), "peer_p99_us": median(levels[side], "latency_us", "p99")}
        report(name + side, mine, theirs, sides[side][0], "requests/s", ROUNDS, max(spread(rates[None]), spread(rates[side])),
               ratio=mine / theirs, also=also | more)


@contextlib.contextmanager
def beside(repository, name, threads, peers):
    """Ours (None) and its peers: what each is called, and its port."""
    with contextlib.ExitStack() as stack:
        sides = {None: ("", stack.enter_context(ours(repository)))}
        for side, (who, server) in peers.items():
            sides[side] = (who, stack.enter_context(server))
        for side, by in PYTHON_PEERS.items():
            if installed(by):
                sides[side] = (f"{by} behind FastAPI and uvicorn", stack.enter_context(python_peer(name, threads, by)))
        yield sides


HEALTH = ("serve.health", ["--get", "/v2/health/ready", "--concurrency", "8"], {"": 10, ".beast": 0.6})
TINY = [(f"serve.tiny.{n}", ["-m", "digits", "--concurrency", str(n)], {"": 10, ".onnxruntime": 10, ".beast": 0.6}) for n in (1, 8, 64)]
IMAGE = ("serve.resnet50.b1", ["-m", "resnet50", "--concurrency", "1"], {"": 1, ".onnxruntime": 1})


OVERHEADS = (("serve.overhead.small", "digits", 25), ("serve.overhead.image", "copy", 60))  # in us


def lines(comparison):
    name, _, aims = comparison
    return [name + side for side in aims]


def small(repository):
    save(repository, "digits", cores=1)
    with beside(repository, "digits", 1, {".beast": ("Beast, which gives the body back", beast("digits"))}) as sides:
        for name, arguments, aims in (HEALTH, *TINY):
            if any(wanted(name + side) for side in aims):
                compare(name, sides, arguments, aims)


def resnet(repository):
    save(repository, "resnet50")
    with beside(repository, "resnet50", THREADS, {}) as sides:
        compare(IMAGE[0], sides, *IMAGE[1:], seconds=4.0)


def batches(repository):
    """Images a second where more come than can be answered, beside the same plan in this process; latency at 70% of it."""
    import sluice as sl

    most = 4
    save(repository, "resnet50", config=f"max_batch_size: {most}\ndynamic_batching {{ }}\n", dims={0: sl.Dim("batch", max=most, buckets=[1, 2, most])})
    graph, x = sl.load_graph(repository / "resnet50/1/model"), sl.randn(most, *SHAPES["resnet50"][1:])
    with ours(repository, "--max-queue-size", "16") as port:
        peak = most * 1e3 / in_process(graph, x)
        rounds = [(load(port, "-m", "resnet50", "--request-rate", str(1.5 * peak), seconds=4)[0], most * 1e3 / in_process(graph, x, seconds=3))
                  for _ in range(ROUNDS)]
        rates = [[level["throughput_per_s"] for level, _ in rounds], [rate for _, rate in rounds]]
        mine, plan = map(statistics.median, rates)
        report("serve.resnet50.batch", mine, plan, "its plan in process", "images/s", ROUNDS, max(map(spread, rates)), ratio=mine / plan,
               also={"aim": 0.95, "refused": sum(sum(level["errors"].values()) for level, _ in rounds)})
        for name, how in (("", ["--constant"]), (".poisson", [])):
            levels = [load(port, "-m", "resnet50", "--request-rate", str(0.7 * mine), *how, seconds=10)[0] for _ in range(3)]
            over = [level["latency_us"]["p99"] / level["latency_us"]["p50"] for level in levels]
            report("serve.resnet50.batch.p99" + name, statistics.median(over), 2.5, "the aim", "times p50 at 70% load", len(levels), spread(over),
                   also={"p50_us": median(levels, "latency_us", "p50"), "p99_us": median(levels, "latency_us", "p99")})


def overhead(repository):
    """The time that a client waits beside the plan's own step: mean of the whole less that of the step, as the server says it.

    Most of it is the client's and the kernel's, which Beast's server shows: it computes nothing.
    """
    save(repository, "copy", cores=1)
    save(repository, "digits", cores=1)
    with ours(repository) as port:
        for name, model, aim in OVERHEADS:
            if not any(wanted(name + side) for side in ("", ".beast")):
                continue
            with beast(model) as least:
                rounds = [(load(port, "-m", model)[0], load(least, "-m", model)[0]["latency_us"]["mean"]) for _ in range(ROUNDS)]
            levels, floor = zip(*rounds)
            extra = [level["latency_us"]["mean"] - level["server"]["compute_infer_us"] for level in levels]
            also = {part: median(levels, "server", part) for part in ("queue_us", "compute_input_us", "compute_infer_us", "compute_output_us")}
            mine = statistics.median(extra)
            if wanted(name):
                report(name, mine, aim, "the aim", "us", ROUNDS, spread(extra), also=also | {"p50_us": median(levels, "latency_us", "p50")})
            report(name + ".beast", mine, statistics.median(floor), "Beast, which computes nothing", "us", ROUNDS, max(spread(extra), spread(floor)))


def instances(repository):
    """Two instances on two cores against one on one: requests a second."""
    save(repository / "one", "chain", cores=1)
    save(repository / "two", "chain", cores=1, config="instance_group { count: 2 }\n")
    with ours(repository / "one", "--cores", "1") as one, ours(repository / "two", "--cores", "2") as two:
        rounds = [[load(port, "-m", "chain", "--concurrency", "4")[0]["throughput_per_s"] for port in (two, one)] for _ in range(ROUNDS)]
    mine, single = (statistics.median(side) for side in zip(*rounds))
    report("serve.instances", mine, single, "one instance on one core", "requests/s", ROUNDS, max(map(spread, zip(*rounds))), ratio=mine / single)


def zoo(repository):
    """The p50 of one client beside that of the same plan in this process, for nets that people serve."""
    import sluice as sl
    from serve_zoo import NETS

    for name, (make, _) in NETS.items():
        if not wanted(f"serve.nets.{name}"):
            continue
        shape = (1, 3, 224, 224)
        save(repository / name, name, net=make(224), shape=shape)
        graph, x = sl.load_graph(repository / name / name / "1" / "model"), sl.randn(*shape)
        with ours(repository / name) as port:
            rounds = [(load(port, "-m", name)[0]["latency_us"]["p50"] / 1e3, in_process(graph, x)) for _ in range(ROUNDS)]
        served, plan = (statistics.median(side) for side in zip(*rounds))
        report(f"serve.nets.{name}", served, plan, "its plan in process", "ms", ROUNDS, max(map(spread, zip(*rounds))), ratio=plan / served)
        shutil.rmtree(repository / name)


def in_process(graph, x, seconds=1.0):
    """Milliseconds of a call, the median."""
    times, end = [], time.perf_counter() + seconds
    graph(x).numpy()
    while time.perf_counter() < end or not times:
        begin = time.perf_counter()
        graph(x).numpy()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def main():
    from serve_zoo import NETS

    programs = [(small, sum(map(lines, (HEALTH, *TINY)), [])), (overhead, [name + side for name, _, _ in OVERHEADS for side in ("", ".beast")]),
                (instances, ("serve.instances",)), (resnet, lines(IMAGE)),
                (batches, [f"serve.resnet50.batch{what}" for what in ("", ".p99", ".p99.poisson")]), (zoo, tuple(f"serve.nets.{name}" for name in NETS))]
    for program, names in programs:
        if any(wanted(name) for name in names):
            with tempfile.TemporaryDirectory() as folder:
                program(pathlib.Path(folder))


if __name__ == "__main__":
    main()
