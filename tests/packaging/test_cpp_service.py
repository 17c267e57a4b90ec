"""`examples/cpp_service`: many clients, whatever one of them does."""

import http.client
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import sluice as sl
from sluice._base.tools import find_tool


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    class Net(sl.nn.Graph):
        def build(self, x):
            return x * 2

    graph = Net()
    graph(sl.zeros(4))
    path = tmp_path_factory.mktemp("service") / "bundle"
    sl.save(graph, path)
    return path


@pytest.fixture
def service(bundle):
    """The process, and its port."""
    process = subprocess.Popen([find_tool("cpp_service"), bundle, "0"], stdout=subprocess.PIPE, text=True)
    process.port = int(process.stdout.readline())
    yield process
    process.kill()
    process.communicate()


def client(service):
    return http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)


def ask(connection, path="/step", body=b""):
    connection.request("POST", path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def doubles(connection, x):
    status, body = ask(connection, body=x.tobytes())
    return status == 200 and np.array_equal(np.frombuffer(body, np.float32), 2 * x)


def silent(service, said=b""):
    """A client that says no more than this."""
    connection = socket.create_connection(("127.0.0.1", service.port))
    connection.sendall(said)
    return connection


X = np.arange(4, dtype=np.float32)


def test_idle_and_half_said_requests_hold_up_nobody(service):
    idle = [silent(service, said) for said in (b"", b"POST /st", b"POST /step HTTP/1.1\r\nContent-Length: 16\r\n\r\n\0\0") for _ in range(20)]
    start = time.monotonic()
    assert doubles(client(service), X)
    assert time.monotonic() - start < 30  # the service's own patience is 60 s
    idle[-1].sendall(b"\0" * 14)  # and who goes on is answered
    assert idle[-1].recv(100).startswith(b"HTTP/1.1 200")


def test_many_clients_at_once_keep_their_connections(service):
    def work(seed):
        connection, rng = client(service), np.random.default_rng(seed)
        return all(doubles(connection, rng.standard_normal(4, np.float32)) for _ in range(30))

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(work, range(32)))


def test_wrong_requests_are_answered_and_the_connection_goes_on(service):
    connection = client(service)
    status, text = ask(connection, body=b"short")
    assert status == 400 and b"the body ends within" in text
    status, text = ask(connection, body=X.tobytes() + b"more")
    assert status == 400 and b"more than the inputs" in text
    assert ask(connection, "/nosuch")[0] == 404
    status, text = ask(connection, "/ports")
    assert status == 200 and text.startswith(b"input x") and b"float32(4" in text
    assert doubles(connection, X)


def test_clients_that_vanish_and_noise_do_no_harm(service):
    for said in (b"", b"\x16\x03\x01\x02\x00", b"GET", b"POST /step HTTP/1.1\r\nContent-Length: 16\r\n\r\n" + X.tobytes(),
                 b"POST /step HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"):
        for _ in range(10):
            silent(service, said).close()
    assert doubles(client(service), X)


def test_stop_ends_it_whoever_is_connected(service):
    idle = [silent(service) for _ in range(5)]
    assert ask(client(service), "/stop")[0] == 200
    assert service.wait(timeout=60) == 0
    del idle
