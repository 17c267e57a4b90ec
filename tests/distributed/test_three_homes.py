"""One file of a plan of several ranks, at home in one process, in several, and in a C++ service."""

import hashlib
import http.client
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent

import numpy as np
import pytest

import sluice as sl
from rank_programs import environment, ranks, start  # noqa: F401: fixtures
from sluice._base.tools import find_tool

DATA = """
rng = np.random.default_rng(0)
images = rng.normal(size=(96, 12)).astype(np.float32)
labels = np.asarray(images[:, :4].argmax(1))
batches = [(images[i:i + 24], labels[i:i + 24]) for _ in range(5) for i in range(0, 96, 24)]

def show(results):  # 20 losses, and the last scores
    results = [(loss.numpy(), scores.numpy()) for loss, scores in results]
    assert results[-1][0] < results[0][0]
    print(*[loss.tobytes().hex() for loss, _ in results], results[-1][1].tobytes().hex())
"""

SAVE = DATA + """
from sluice import nn
dist.init()
S, B = sl.sbp.split, sl.sbp.broadcast
W, C = sl.placement("sim", range(size)), sl.placement("cpu", range(size))
first, last = sl.placement("sim", [0]), sl.placement("sim", [size - 1])

class Train(nn.Graph):
    def __init__(self, net, optimizer, stages):
        super().__init__(name="train")
        self.net, self.stages = net, stages
        self.add_optimizer(optimizer, lr_sch=sl.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20))
        self.config.set_cores(1)

    def build(self, x, y):
        for i, layer in enumerate(self.net):
            x = layer(x.to_global(self.stages[i], B) if i in self.stages else x)
        loss = nn.functional.cross_entropy(x, y)
        loss.backward()
        return loss, x

def save(name, lay, part, optimizer, between=nn.Identity(), stages={}):
    sl.manual_seed(1)
    net = nn.Sequential(nn.Linear(12, 16), between, nn.ReLU(), nn.Linear(16, 4))
    part(net)
    graph = Train(net, optimizer(net.parameters()), stages)
    graph.compile(*map(lay, batches[0]))
    sl.save(graph, name)
    show([graph(*map(lay, batch)) for batch in batches])

def columns(net):
    net.to_global(C, B)
    net[0].weight.data, net[3].weight.data = net[0].weight.data.to_global(C, S(0)), net[3].weight.data.to_global(C, S(1))
    net[0].bias.data = net[0].bias.data.to_global(C, S(0))

def stages(net):
    for i, layer in enumerate(net):
        layer.to_global(first if i < 2 else last, B)

def mine(rows):
    return sl.tensor(np.array_split(rows, size)[rank]).to_global(W, S(0))

save("data", mine, lambda net: net.to_global(W, B), lambda p: sl.optim.Adam(p, lr=1e-2), nn.Dropout(0.1))
save("tensor", lambda t: sl.tensor(t).to_global(C, B), columns, lambda p: sl.optim.SGD(p, lr=0.1, momentum=0.9))
save("stages", sl.tensor, stages, lambda p: sl.optim.SGD(p, lr=0.1, momentum=0.9), stages={0: first, 2: last})
"""

NAMES = ["data", "tensor", "stages"]


def sha256(bundle):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in bundle.iterdir()}


class Service:
    """`cpp_service`, alone or as one of several ranks."""

    def __init__(self, bundle, *rank, token="three homes"):
        command = [find_tool("cpp_service"), str(bundle), "0", *map(str, rank)]
        self.process = subprocess.Popen(command, env={**os.environ, "SLUICE_TOKEN": token}, stdout=subprocess.PIPE, text=True)

    def connect(self):  # once it has loaded
        self.port = int(self.process.stdout.readline())

    def post(self, path, body=b""):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def step(self, *arrays):
        status, body = self.post("/step", b"".join(np.ascontiguousarray(a).tobytes() for a in arrays))
        assert status == 200, body
        return body[:4].hex(), body[4:].hex()


@pytest.fixture
def service():
    services = []

    def begin(*arguments):
        services.append(Service(*arguments))
        return services[-1]

    yield begin
    for s in services:
        s.process.kill()
        s.process.communicate()


@pytest.fixture
def saved(ranks, tmp_path):  # noqa: F811
    lines = ranks(2, SAVE)
    assert lines[0] == lines[1]
    return tmp_path, dict(zip(NAMES, lines[0]))


def batches():
    space = {}
    exec("import numpy as np\n" + DATA, space)
    return space["batches"]


def test_one_plan_is_at_home_in_one_process_in_several_and_in_a_service(saved, ranks, service):  # noqa: F811  C-08
    path, expected = saved
    files = {name: sha256(path / name) for name in NAMES}
    assert all(len(f) == 4 for f in files.values())

    alone = ranks(1, DATA + dedent(f"""
    for name in {NAMES}:
        graph = sl.load_graph(name)
        assert graph.inputs == [("x", sl.float32, (24, 12)), ("y", sl.int64, (24,))], graph.inputs
        show([graph(*map(sl.tensor, batch)) for batch in batches])
    """))[0]
    assert dict(zip(NAMES, alone)) == expected

    several = ranks(2, DATA + dedent(f"""
    dist.init()
    W = sl.placement("sim", range(size))
    for name in {NAMES}:
        graph = sl.load_graph(name)
        half = lambda t: sl.tensor(np.array_split(t, size)[rank]).to_global(W, sl.sbp.split(0))
        lay = half if name == "data" else sl.tensor
        show([graph(*map(lay, batch)) for batch in batches])
        sl.save(graph, name + "_trained")
    """))
    assert [dict(zip(NAMES, lines)) for lines in several] == [expected] * 2

    for name in NAMES:
        running = service(path / name)
        running.connect()
        results = [running.step(*batch) for batch in batches()]
        assert " ".join([loss for loss, _ in results] + [results[-1][1]]) == expected[name]
        status, body = running.post("/step", b"too little")
        assert (status, body) == (400, b"step: the body ends within x: float32(24, 12)")
        assert running.post("/stop")[0] == 200 and running.process.wait(20) == 0

    # Services that are ranks: each is fed what is its own.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        master = free.getsockname()[1]
    both = [service(path / "data", rank, 2, master) for rank in (0, 1)]
    for running in both:
        running.connect()
    with ThreadPoolExecutor(2) as pool:
        for i, batch in enumerate(batches()):
            halves = [[np.array_split(a, 2)[rank] for a in batch] for rank in (0, 1)]
            answers = [pool.submit(running.step, *half) for running, half in zip(both, halves)]
            assert [a.result()[0] for a in answers] == [expected["data"].split()[i]] * 2

    assert {name: sha256(path / name) for name in NAMES} == files

    # The parameters that the ranks have trained and saved go on alone where they left.
    first, = ranks(1, DATA + dedent("""
    trained, graph = sl.load_graph("tensor_trained"), sl.load_graph("tensor")
    for batch in batches:
        graph(*map(sl.tensor, batch))
    for a, b in zip(graph(*map(sl.tensor, batches[0])), trained(*map(sl.tensor, batches[0]))):
        assert np.array_equal(a.numpy(), b.numpy())
    print("equal")
    """))
    assert first == ["equal"]


def test_a_job_of_another_size_is_refused(saved, ranks):  # noqa: F811
    assert ranks(3, """
    dist.init()
    try:
        sl.load_graph("data")
    except ValueError as e:
        print(e)
    """) == [["data/plan.json: plan 'train': is for 2 ranks; the job has 3  (script.py:10)"]] * 3
