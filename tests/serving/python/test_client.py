"""sluice.serving.Server and sluice.client."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import sluice as sl
from programs import expected, save
from sluice.client import Client, ServingError
from sluice.serving import Server
from test_tritonclient import Two, save_graph
from waiting import all_end


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    save(root, "net")
    save_graph(Two(name="two"), root / "two" / "1" / "model", sl.zeros(3), sl.zeros(3))
    return root


@pytest.fixture(scope="module")
def server(repository):
    with Server(repository, arguments=["--model-control-mode", "explicit", "--load-model", "*"]) as running:
        yield running


def test_results_are_those_in_process(server, repository):
    graph = sl.load_graph(repository / "net" / "1" / "model")
    x = np.random.default_rng(0).normal(size=(1, 16)).astype(np.float32)
    with server.client() as client:
        for given in (x, torch.tensor(x), sl.from_numpy(x)):
            result = client.infer("net", {"INPUT_0": given})
            np.testing.assert_array_equal(result["OUTPUT_0"], expected(graph, x))
        both = client.infer("two", {"INPUT_1": np.float32([1, 2, 3]), "INPUT_0": np.float32([5, 5, 5])}, outputs=["OUTPUT_1", "OUTPUT_0"])
        assert list(both) == ["OUTPUT_1", "OUTPUT_0"] and both["OUTPUT_0"].tolist() == [4, 3, 2]
        top = client.infer("net", {"INPUT_0": x}, classes=2)["OUTPUT_0"].tolist()
        y = expected(graph, x)[0]
        assert top == [f"{y[i]:f}:{i}".encode() for i in np.argsort(-y)[:2]]


def test_a_decorated_function_is_saved_served_and_asked_by_curl(tmp_path):  # PS-13
    @sl.nn.Graph.trace
    def scale(x):
        return (x * 2 + 1).relu()

    expected = scale(sl.tensor([[1.5, -3.0]])).numpy()
    (tmp_path / "models/scale/1").mkdir(parents=True)
    sl.save(scale, tmp_path / "models/scale/1/model")
    with Server(tmp_path / "models") as server:
        body = json.dumps({"inputs": [{"name": "INPUT_0", "datatype": "FP32", "shape": [1, 2], "data": [1.5, -3.0]}]})
        answer = subprocess.run(["curl", "-sf", f"{server.http_url}/v2/models/scale/infer", "-d", body], check=True, capture_output=True)
    output, = json.loads(answer.stdout)["outputs"]
    assert (output["name"], output["shape"], output["data"]) == ("OUTPUT_0", [1, 2], expected.ravel().tolist())


def test_what_the_server_says(server):
    with server.client() as client:
        assert client.is_live() and client.is_ready() and client.is_ready("net") and not client.is_ready("nobody")
        assert client.metadata()["version"] == sl.__version__
        assert client.metadata("net")["inputs"] == [{"name": "INPUT_0", "datatype": "FP32", "shape": [1, 16]}]
        assert client.config("net", 1)["name"] == "net"
        before = client.statistics("two")[0]["inference_count"]
        client.infer("two", {"INPUT_0": np.zeros(3, np.float32), "INPUT_1": np.zeros(3, np.float32)})
        assert client.statistics("two")[0]["inference_count"] == before + 1
        client.unload("two")
        assert {m["name"]: m["state"] for m in client.index()}["net"] == "READY"
        client.load("two")
        assert client.is_ready("two")


def test_errors_are_the_servers(server):
    with server.client() as client:
        with pytest.raises(ServingError, match="Request for unknown model: 'nobody' is not found") as caught:
            client.infer("nobody", {})
        assert caught.value.status == 404
        with pytest.raises(ServingError, match="INPUT_0"):
            client.infer("net", {"INPUT_0": np.zeros(3)})
        with pytest.raises(TypeError, match="input 'INPUT_0' has dtype complex128"):
            client.infer("net", {"INPUT_0": np.zeros(3, complex)})
    with pytest.raises(ValueError, match="url is 'https://x'"):
        Client("https://x")


def test_threads_share_a_client(server, repository):
    graph = sl.load_graph(repository / "net" / "1" / "model")
    wrong = []

    def work(seed):
        for i in range(20):
            x = np.random.default_rng([seed, i]).normal(size=(1, 16)).astype(np.float32)
            if not np.array_equal(client.infer("net", {"INPUT_0": x})["OUTPUT_0"], answers[seed, i]):
                wrong.append((seed, i))

    answers = {(s, i): expected(graph, np.random.default_rng([s, i]).normal(size=(1, 16)).astype(np.float32)) for s in range(8) for i in range(20)}
    with server.client() as client:
        threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


def test_a_server_that_cannot_serve_says_why(tmp_path):
    with pytest.raises(RuntimeError, match="sluice-serve: it ended with"):
        Server(tmp_path / "nothing")


def test_it_ends_with_the_program_that_started_it(repository):
    """Also one that is killed; and not with the thread that started it."""
    program = ("import sys, threading\nfrom sluice.serving import Server\nservers = []\n"
               "thread = threading.Thread(target=lambda: servers.append(Server(sys.argv[1])))\nthread.start()\nthread.join()\n"
               "print(servers[0]._process.pid, servers[0].client().is_ready(), flush=True)\nsys.stdin.read()\n")
    with subprocess.Popen([sys.executable, "-c", program, repository], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        pid, ready = parent.stdout.readline().split()
        assert ready == "True"
        parent.kill()
    assert all_end([int(pid)])


def test_it_stops_and_tells(repository):
    server = Server(repository)
    assert server.running and server.stop() == 0 and not server.running and server.stop() == 0
    with pytest.raises(OSError):
        server.client().infer("net", {})
