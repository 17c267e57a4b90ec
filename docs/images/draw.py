"""Draws the pictures of README, docs and examples anew, from real runs: `python docs/images/draw.py` after `make build` and `. ./activate`.

Needs Graphviz, and Chromium, which takes the screenshots of the pages that plan-viz writes.
"""

import argparse
import http.client
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from sluice.serving import Server  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent


def run(*command: object, cwd: pathlib.Path = ROOT) -> None:
    subprocess.run([str(c) for c in command], check=True, cwd=cwd)


def screenshot(page: pathlib.Path, picture: pathlib.Path, size: str = "1280,800", fragment: str = "") -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as profile:
        run(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
            f"--window-size={size}", f"--screenshot={picture}", f"file://{page}{fragment}")


def graphs_and_plans(work: pathlib.Path, out: pathlib.Path) -> None:
    """The pictures of docs/graphs-and-plans.md, of the program that stands there."""
    page = (ROOT / "docs/graphs-and-plans.md").read_text()
    (work / "train.py").write_text(re.search(r"^```python\n(# train\.py\n.*?)^```", page, re.S | re.M)[1])
    run(sys.executable, "train.py", cwd=work)
    dot = subprocess.run(["plan-viz", "dot", "out/train"], check=True, cwd=work, capture_output=True).stdout
    subprocess.run(["dot", "-Tpng", "-Gdpi=110", "-o", out / "plan-actors.png"], input=dot, check=True)
    run("plan-viz", "html", "out/train", "-o", "lanes.html", "--source", ".", cwd=work)
    screenshot(work / "lanes.html", out / "plan-lanes.png", "1280,640")
    screenshot(work / "lanes.html", out / "plan-memory.png", "1280,640", "#view=memory&space=1")


def classified_in_cpp(digits: pathlib.Path, picture: pathlib.Path) -> None:
    """Draws how cpp_runner has classified the first images that train_digits.py gave it."""
    logits = np.fromfile(digits / "logits.f32", np.float32).reshape(-1, 10)
    images = np.fromfile(digits / "images.f32", np.float32).reshape(len(logits), 8, 8)
    figure, axes = plt.subplots(2, 10, figsize=(9, 2.4))
    for axis, image, scores in zip(axes.flat, images, logits):
        axis.imshow(image, cmap="gray_r")
        axis.set_title(str(scores.argmax()), fontsize=13)
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


def served_clients(bundle: pathlib.Path, picture: pathlib.Path) -> None:
    """Answers that clients of cpp_service get, beside nobody and beside clients that say nothing, in turn."""
    service = subprocess.Popen([ROOT / "build/release/examples/cpp_service", bundle, "0"], stdout=subprocess.PIPE, text=True)
    port = int(re.search(r"(\d+)\s*$", service.stdout.readline())[1])

    def ask(method: str, target: str, body: bytes = b"", connection: http.client.HTTPConnection | None = None) -> bytes:
        connection = connection or http.client.HTTPConnection("127.0.0.1", port)
        connection.request(method, target, body)
        return connection.getresponse().read()

    words = re.search(r"input .*\((.*)\)", ask("GET", "/ports").decode())[1].rstrip(",").split(", ")
    body = np.zeros([int(word) for word in words], np.float32).tobytes()

    def answers(clients: int, seconds: float = 0.4) -> float:
        end, counts = time.perf_counter() + seconds, [0] * clients

        def client(i: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            while time.perf_counter() < end:
                ask("POST", "/step", body, connection)
                counts[i] += 1

        threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / seconds

    numbers = [1, 2, 4, 8, 16]
    rates = {beside: [[0.0] * len(numbers) for _ in range(7)] for beside in (False, True)}
    answers(2)
    for turn in range(7):
        for i, n in enumerate(numbers):
            rates[False][turn][i] = answers(n)
            idle = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(32)]
            for connection in idle:
                connection.connect()
            rates[True][turn][i] = answers(n)
            for connection in idle:
                connection.close()
    ask("POST", "/stop")
    service.wait()
    one = np.median(rates[False], axis=0)[0]
    figure, axis = plt.subplots(figsize=(7, 3.2))
    for beside, label in ((False, "alone"), (True, "beside 32 clients that are connected and say nothing")):
        axis.plot(numbers, np.median(rates[beside], axis=0) / one, marker="o", label=label)
    axis.set(xlabel="clients that ask", ylabel="answers a second,\nas multiples of one client's", xticks=numbers, ylim=(0, None))
    axis.legend()
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


CUSTOM = """
import sluice as sl
sl.ops.load_library("example_ops.so")
class Net(sl.nn.Graph):
    def __init__(self):
        super().__init__()
        self.net = sl.nn.Linear(64, 32)
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))
    def build(self, x, y):
        loss = sl.ops.squared_distance(sl.ops.scaled_softsign(self.net(x), slope=2.0), y).mean()
        loss.backward()
        return loss
net = Net()
net(sl.randn(32, 64), sl.randn(32, 32))
sl.save(net, "custom")
"""


def ops_of_ones_own(work: pathlib.Path, out: pathlib.Path) -> None:
    run(os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-shared", "-fPIC", f"-I{ROOT / 'include'}",
        ROOT / "examples/custom_op/example_ops.cpp", "-o", work / "example_ops.so")
    (work / "own.py").write_text(CUSTOM)
    run(sys.executable, "own.py", cwd=work)
    run("plan-viz", "html", "custom", "-o", "custom.html", "--source", ".", cwd=work)
    screenshot(work / "custom.html", out / "custom-op.png", "1280,560")


def installed(work: pathlib.Path) -> pathlib.Path:
    for component in ("cpp", "backend"):
        run("cmake", "--install", ROOT / "build/release", "--prefix", work / "sluice", "--component", component)
    return work / "sluice"


def built(example: str, work: pathlib.Path, prefix: pathlib.Path) -> pathlib.Path:
    where = work / f"{example}-build"
    run("cmake", "-S", ROOT / "examples" / example, "-B", where, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", where)
    return where


NETS = """
import sluice as sl
class Net(sl.nn.Graph):
    def __init__(self, name, *sizes):
        super().__init__(name=name)
        self.net = sl.nn.Sequential(sl.nn.Linear(*sizes), sl.nn.Tanh())
    def build(self, x):
        with sl.stream("host"):
            x = x / 50
        return self.net(x)
sl.manual_seed(0)
for name, sizes in (("encoder", (64, 32)), ("classifier", (32, 10))):
    net = Net(name, *sizes)
    net(sl.zeros(8, sizes[0]))
    sl.save(net, name)
"""


def sessions_as_actors(work: pathlib.Path, out: pathlib.Path, prefix: pathlib.Path) -> None:
    """Draws what caf_service composes: the actors of two plans, in two CAF actors, and one between them; and what a run answers."""
    (work / "nets.py").write_text(NETS)
    run(sys.executable, "nets.py", cwd=work)
    service = built("caf_service", work, prefix) / "caf_service"
    told = subprocess.run([service, "encoder", "classifier", "40"], check=True, cwd=work, capture_output=True, text=True)
    answers = told.stdout.split()
    assert len(answers) == 40, answers
    lines, ends = [], {}
    for name in ("encoder", "classifier"):
        dot = subprocess.run(["plan-viz", "dot", name], check=True, cwd=work, capture_output=True, text=True).stdout
        ends[name] = [re.search(rf'(a\d+) \[label="{port}"', dot)[1] for port in ("inputs", "outputs")]
        body = re.sub(r"\b(a\d+|cluster_\d+)\b", rf"\1{name}", dot[dot.index("  subgraph"):dot.rindex("}")])
        if name == "classifier":  # the way back
            body = re.sub(r"(\w+) -> (\w+) \[", r"\2 -> \1 [dir=back, ", body)
        title = f'label="session actor: {name}"; style=bold; fontname="sans-serif";'
        lines += [f"subgraph cluster_{name} {{", title, body, "}"]
    (feed, sink), (next_feed, last_sink) = ([f"{node}{name}" for node in nodes] for name, nodes in ends.items())
    shown = "\\n".join([f"{len(answers)} answers:", *answers[:3], "..."])
    lines += ['scaler [label="scaler:\\nan actor of one\'s own", style="rounded,bold"];',
              f'requests [label="{len(answers)} requests", shape=plaintext];', f'answers [label="{shown}", shape=plaintext];',
              f"requests -> {feed}; answers -> {last_sink} [dir=back];",
              f'{sink} -> scaler [label="Tensors", style=bold];',
              f'{next_feed} -> scaler [label="Tensors", style=bold, dir=back];']
    picture = "\n".join(["digraph caf_service {", "rankdir=LR; ranksep=0.25; nodesep=0.4;", 'node [shape=box, style=rounded, fontname="sans-serif"];',
                         'edge [fontname="sans-serif", fontsize=10];', *lines, "}"])
    subprocess.run(["dot", "-Tpng", "-Gdpi=96", "-o", out / "caf-service.png"], input=picture.encode(), check=True)


DEVICE = """
import sys
import sluice as sl
sl.backends.load(sys.argv[1])
class Train(sl.nn.Graph):
    def __init__(self, device):
        super().__init__(name="train")
        self.config.set_device(device)
        sl.manual_seed(0)
        self.net = sl.nn.Sequential(sl.nn.Linear(64, 128), sl.nn.ReLU(), sl.nn.Linear(128, 10))
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))
    def build(self, x, y):
        with sl.stream("host"):
            x = x * 2 - 1
        loss = sl.nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        return loss
def losses(graph):
    sl.manual_seed(1)
    return [graph(sl.rand(32, 64), sl.randint(0, 10, (32,))).item() for _ in range(20)]
there = Train("example:0")
assert losses(there) == losses(Train("cpu")), "the device computes something else than the CPU"
sl.save(there, "train_there")
"""


def device_of_ones_own(work: pathlib.Path, out: pathlib.Path, prefix: pathlib.Path) -> None:
    """The plan of a training step on the device of examples/device, once its losses are the CPU's, bit for bit."""
    library = built("device", work, prefix) / "libsluice_example.so"
    (work / "there.py").write_text(DEVICE)
    run(sys.executable, "there.py", library, cwd=work)
    run("plan-viz", "html", "train_there", "-o", "there.html", "--source", ".", cwd=work)
    screenshot(work / "there.html", out / "device.png", "1280,640")


SERVED = """
import pathlib
import sluice as sl


class Digits(sl.nn.Graph):
    def __init__(self):
        super().__init__(name="digits")
        self.net = sl.nn.Sequential(sl.nn.Conv2d(1, 16, 3, padding=1), sl.nn.ReLU(), sl.nn.Conv2d(16, 32, 3), sl.nn.ReLU(),
                                    sl.nn.MaxPool2d(2), sl.nn.Flatten(), sl.nn.Linear(288, 10))

    def build(self, x):
        return self.net(x)


graph = Digits()
graph.config.set_dims({"x": {0: sl.Dim("batch", max=8, buckets=[1, 2, 4, 8])}})
with sl.no_grad():
    graph(sl.zeros(8, 1, 8, 8))
folder = pathlib.Path("models/digits")
(folder / "1").mkdir(parents=True)
sl.save(graph, folder / "1/model")
(folder / "config.pbtxt").write_text('''
max_batch_size: 8
instance_group { count: 2 }
dynamic_batching {
  preferred_batch_size: [4, 8] max_queue_delay_microseconds: 500
  priority_levels: 2 default_priority_level: 2
  priority_queue_policy { key: 2 value { max_queue_size: 64 default_timeout_microseconds: 100000 } }
}''')
"""


def what_serves_a_model(work: pathlib.Path, out: pathlib.Path) -> None:
    """The picture of docs/serving-more.md: queues, batcher and instances."""
    (work / "served.py").write_text(SERVED)
    run(sys.executable, "served.py", cwd=work)
    told = subprocess.run(["sluice-serve", "check", "models", "--json"], check=True, cwd=work, capture_output=True).stdout
    subprocess.run(["plan-viz", "served", "-", "-o", "served.svg"], input=told, check=True, cwd=work)
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', (work / "served.svg").read_text()).groups())
    screenshot(work / "served.svg", out / "served-plan.png", f"{width + 16:.0f},{height + 16:.0f}")


def traced_requests(work: pathlib.Path, out: pathlib.Path) -> None:
    """The picture of docs/serving.md: requests of a few clients above the lanes of two instances."""
    what_serves_a_model(work, out)
    trace = work / "trace.json"
    with Server(work / "models", arguments=["--trace-config", f"file={trace}", "--trace-config", "level=TIMESTAMPS", "--trace-config", "rate=1"]) as server:
        def client() -> None:
            with server.client() as one:
                name = one.metadata("digits")["inputs"][0]["name"]
                for _ in range(40):
                    one.infer("digits", {name: np.zeros((1, 1, 8, 8), np.float32)})

        threads = [threading.Thread(target=client) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    run("plan-viz", "html", "models/digits/1/model/members/2", "--trace", "trace.json", "-o", "requests.html", cwd=work)
    screenshot(work / "requests.html", out / "served-requests.png", "1280,760")


def slow_run(work: pathlib.Path, out: pathlib.Path) -> None:
    """The pictures of docs/plan-viz.md: steps of examples/slow_digits.py at the times that were recorded, before and after it is mended."""
    for name, slots in (("before", 1), ("after", 2)):
        subprocess.run([sys.executable, ROOT / "examples/slow_digits.py", "--slots", str(slots)], check=True, cwd=work,
                       env={**os.environ, "SLUICE_TRACE": f"{name}.slt"})
        run("plan-viz", "svg", f"{name}.slt", "-o", f"{name}.svg", cwd=work)
        screenshot(work / f"{name}.svg", out / f"slow-run-{name}.png", "1100,124")


def others(work: pathlib.Path, out: pathlib.Path) -> None:
    """The pictures of README and of the examples."""
    run(sys.executable, "examples/train_digits.py", "--out", work / "digits")
    shutil.copy(work / "digits/loss.png", out / "digits-loss.png")
    classified_in_cpp(work / "digits", out / "digits-in-cpp.png")
    served_clients(work / "digits/bundle", out / "cpp-service.png")
    ops_of_ones_own(work, out)
    prefix = installed(work)
    sessions_as_actors(work, out, prefix)
    device_of_ones_own(work, out, prefix)
    screenshot(work / "digits/two_devices.html", out / "plan.png")
    run(sys.executable, "-m", "sluice.distributed.launch", "--nproc_per_node", 2, "examples/distributed_digits.py",
        "--out", work / "ranks")
    screenshot(work / "ranks/plan.html", out / "digits-ranks.png", "1280,640")


PARTS = {"plans": graphs_and_plans, "slow_run": slow_run, "requests": traced_requests, "others": others}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="where the pictures go")
    parser.add_argument("--only", choices=PARTS, help="a part of them")
    args = parser.parse_args()
    for name in [args.only] if args.only else PARTS:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](pathlib.Path(folder), args.out.resolve())


if __name__ == "__main__":
    main()
