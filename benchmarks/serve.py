"""serve.*: sluice-serve under sluice-perf, beside torch behind FastAPI and uvicorn (serve_peer.py), each in turn.

The peer runs where fastapi, uvicorn, uvloop and httptools are installed; without them its column is empty.
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
PEER = "torch behind FastAPI and uvicorn"
HAS_PEER = all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn", "uvloop", "httptools"))
ROUNDS = 5


def save(repository, name, cores=THREADS, config=None, net=None, shape=None):
    import sluice as sl

    class Infer(sl.nn.Graph):
        def __init__(self):
            super().__init__(name=name)
            self.net = (net or net_of(sl, name)).eval()
            self.config.set_cores(cores)

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
def peer(name, threads=THREADS):
    server = subprocess.Popen([sys.executable, ROOT / "benchmarks/serve_peer.py", name, str(threads)], stdout=subprocess.PIPE, text=True)
    yield server.stdout.readline().strip()
    server.kill()
    server.wait()


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


def compare(name, sides, arguments, unit="requests/s", **more):
    """Rounds in turn of both sides; a ratio of throughputs."""
    rounds = [[load(port, *arguments)[-1] for port in sides] for _ in range(ROUNDS)]
    levels = list(zip(*rounds))
    rates = [[level["throughput_per_s"] for level in side] for side in levels]
    mine = statistics.median(rates[0])
    theirs = statistics.median(rates[1]) if len(rates) > 1 else None
    also = {"p50_us": median(levels[0], "latency_us", "p50"), "p99_us": median(levels[0], "latency_us", "p99")}
    if theirs:
        also |= {"peer_p50_us": median(levels[1], "latency_us", "p50"), "peer_p99_us": median(levels[1], "latency_us", "p99")}
    errors = sum(sum(level["errors"].values()) for side in levels for level in side)
    report(name, mine, theirs, PEER if theirs else "none is installed", unit, ROUNDS, max(map(spread, rates)),
           ratio=mine / theirs if theirs else None, also=also | {"errors": errors}, **more)


@contextlib.contextmanager
def both(repository, name, threads=THREADS):
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(ours(repository))]
        if HAS_PEER:
            sides.append(stack.enter_context(peer(name, threads)))
        yield sides


def small(repository):
    save(repository, "digits", cores=1)
    with both(repository, "digits", threads=1) as sides:
        if wanted("serve.health"):
            compare("serve.health", sides, ["--get", "/v2/health/ready", "--concurrency", "8"])
        for connections in (1, 8, 64):
            if wanted(f"serve.tiny.{connections}"):
                compare(f"serve.tiny.{connections}", sides, ["-m", "digits", "--concurrency", str(connections)])


def resnet(repository):
    save(repository, "resnet50")
    with both(repository, "resnet50") as sides:
        compare("serve.resnet50.b1", sides, ["-m", "resnet50", "--concurrency", "1"])


def overhead(repository):
    """What a client waits for beside the plan's own step: mean of the whole less that of the step, as the server says it."""
    save(repository, "copy", cores=1)
    save(repository, "digits", cores=1)
    with ours(repository) as port:
        for name, model, aim in (("serve.overhead.small", "digits", 25), ("serve.overhead.image", "copy", 60)):
            if not wanted(name):
                continue
            levels = [load(port, "-m", model)[0] for _ in range(ROUNDS)]
            extra = [level["latency_us"]["mean"] - level["server"]["compute_infer_us"] for level in levels]
            report(name, statistics.median(extra), aim, "the aim", "us", ROUNDS, spread(extra),
                   also={part: median(levels, "server", part) for part in ("queue_us", "compute_input_us", "compute_infer_us", "compute_output_us")}
                   | {"p50_us": median(levels, "latency_us", "p50")})


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

    programs = [(small, ("serve.health", "serve.tiny.1", "serve.tiny.8", "serve.tiny.64")), (overhead, ("serve.overhead.small", "serve.overhead.image")),
                (instances, ("serve.instances",)), (resnet, ("serve.resnet50.b1",)), (zoo, tuple(f"serve.nets.{name}" for name in NETS))]
    for program, names in programs:
        if any(wanted(name) for name in names):
            with tempfile.TemporaryDirectory() as folder:
                program(pathlib.Path(folder))


if __name__ == "__main__":
    main()
