"""The memory of sluice-serve as the system sees it, beside what the server says that clients hold; and its end, and its
health, beside clients that are no good.

Counts are small here, and those of an attack with SLUICE_LONG (`make test-long`).
"""

import contextlib
import gzip
import json
import os
import re
import resource
import signal
import socket
import struct
import time

import numpy as np
import pytest

import sluice as sl
from programs import save, served
from test_load import LONG, MIB, Client
from waiting import PATIENCE, wait_until

CONNECTION = 48 << 10  # bytes that one may cost beside its requests
LEFT = 2 << 10         # and leave behind in the allocator, for the next
SLACK = 16 * MIB       # of the allocator, of threads, of code that runs for the first time


class Wide(sl.nn.Graph):
    """4 MiB of a row of 16."""

    def __init__(self):
        super().__init__(name="wide")

    def build(self, x):
        return sl.cat([x] * 256, dim=1).reshape(256, 16).repeat(256, 1)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    save(repository, "net")
    graph = Wide()
    graph(sl.zeros(1, 16))
    folder = repository / "wide" / "1" / "model"
    folder.parent.mkdir(parents=True)
    sl.save(graph, folder)
    return repository


@contextlib.contextmanager
def descriptors(wanted):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[1], wanted), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def address_of(server):
    host, port = server.http.rsplit(":", 1)
    return host, int(port)


class Figures:
    """The figures that the server tells of itself."""

    def __init__(self, server):
        self.client = Client(server.metrics)

    def read(self):
        _, page = self.client.ask("GET", "/metrics")
        found = {name.decode(): int(float(value)) for name, value in re.findall(rb"^(nv_request_memory\w*|nv_http_connections) (\S+)", page, re.M)}
        return found["nv_request_memory_bytes"], found["nv_request_memory_kept_bytes"], found["nv_http_connections"]

    def wait_until_nothing_is_held(self):
        wait_until(lambda: self.read()[0] == 0, "memory stays counted")


def healthy(server):
    response, _ = Client(server.http).ask("GET", "/v2/health/ready")
    return response.status == 200


def warm(server):
    client = Client(server.http)
    for _ in range(20):
        client.infer("net", np.ones((1, 16), np.float32))
    client.infer("wide", np.ones((1, 16), np.float32))


def test_clients_that_announce_and_send_nothing_hold_nothing(models, tmp_path):
    count = 4000 if LONG else 400
    headers = [b"Content-Length: 60000000\r\n", b"Content-Length: 60000000\r\nContent-Encoding: gzip\r\n",
               b"Transfer-Encoding: chunked\r\n", b"Content-Length: 60000000\r\nInference-Header-Content-Length: 50000000\r\n"]
    with descriptors(3 * count + 500), served(models, "--request-memory", "64MiB", folder=tmp_path) as server:
        warm(server)
        figures, before, clients = Figures(server), server.rss(), []
        for i in range(count):
            client = socket.create_connection(address_of(server))
            client.settimeout(PATIENCE)
            client.sendall(b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n" + headers[i % len(headers)] + b"\r\n")
            clients.append(client)
        for client in clients:  # the server waits for each body now
            assert client.recv(100).startswith(b"HTTP/1.1 100")
        held, kept, connections = figures.read()
        growth = server.rss() - before
        print(f"count: {count} announced bodies; {growth / MIB:.1f} MiB more, {held} bytes counted")
        assert held == 0 and connections >= count
        assert growth <= held + kept + connections * CONNECTION + SLACK
        warm(server)  # and there is room for others
        for client in clients:
            client.close()
        figures.wait_until_nothing_is_held()
        wait_until(lambda: server.rss() - before <= figures.read()[1] + count * LEFT + SLACK, "the memory does not come back")


def unread(server, requests, count):
    """Clients that have each been begun to be answered, and do not read; and their statuses."""
    clients = []
    for i in range(count):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect(address_of(server))
        client.sendall(requests[i % len(requests)])
        clients.append(client)
    return clients, [client.recv(12, socket.MSG_WAITALL)[-3:] for client in clients]


def test_answers_that_nobody_reads_stay_within_the_limit(models, tmp_path):
    count, limit = (100 if LONG else 40), 32 * MIB
    head = json.dumps({"inputs": [{"name": "INPUT_0", "datatype": "FP32", "shape": [1, 16], "parameters": {"binary_data_size": 64}}]}).encode()
    requests = []
    for more in ("", '"parameters":{"binary_data_output":true},'):  # as JSON, and as bytes
        text = head.replace(b"{", b"{" + more.encode(), 1)
        requests.append(b"POST /v2/models/wide/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
                        % (len(text), len(text) + 64) + text + bytes(64))
    with served(models, "--request-memory", limit, folder=tmp_path) as server:
        warm(server)
        figures = Figures(server)

        def leave(clients):
            for client in clients:
                client.close()
            figures.wait_until_nothing_is_held()

        leave(unread(server, requests[1:], count)[0])  # the model has its results in flight from now on, as its ledger says
        before = server.rss()
        clients, statuses = unread(server, requests, count)
        held, kept, connections = figures.read()
        growth = server.rss() - before
        refused = sum(status in (b"429", b"413") for status in statuses)
        print(f"count: {count} answers that nobody reads, {refused} refused; {growth / MIB:.1f} MiB more, {held / MIB:.1f} counted")
        assert set(statuses) <= {b"200", b"429", b"413"} and b"200" in statuses and refused > 0
        assert held + kept <= limit
        assert growth <= held + kept + connections * CONNECTION + SLACK
        assert healthy(server)
        leave(clients)
        wait_until(lambda: server.rss() - before <= figures.read()[1] + SLACK, "the memory does not come back")
        warm(server)


def test_a_small_request_does_not_copy_a_huge_region(models, tmp_path):
    name, size = f"/sluice-test-{os.getpid()}", 4 << 30
    path = f"/dev/shm{name}"
    with open(path, "wb") as region:
        region.truncate(size)  # of holes
    try:
        with served(models, "--request-memory", "64MiB", "--allow-shared-memory", folder=tmp_path) as server:
            warm(server)
            figures, client = Figures(server), Client(server.http)
            client.ask("POST", "/v2/systemsharedmemory/region/huge/register", json.dumps({"key": name, "offset": 0, "byte_size": size}))
            before = server.rss()
            for shape, status in (([1, 16], 400), ([size // 64, 16], 413)):
                one = {"name": "INPUT_0", "datatype": "FP32", "shape": shape,
                       "parameters": {"shared_memory_region": "huge", "shared_memory_byte_size": size}}
                response, data = client.ask("POST", "/v2/models/net/infer", json.dumps({"inputs": [one] * 4}))
                assert response.status == status, data
            assert figures.read()[0] == 0
            assert server.rss() - before <= SLACK
            client.infer("net", np.ones((1, 16), np.float32))
    finally:
        os.unlink(path)


def bombs(server, count):
    """Connections that ask for 60 MiB to be unpacked, without an end."""
    body = gzip.compress(b'{"inputs":[' + b" " * (60 * MIB), 9)
    assert len(body) < 70_000
    request = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    clients = []
    for _ in range(count):
        client = socket.create_connection(address_of(server))
        client.settimeout(PATIENCE)
        client.sendall(request)
        clients.append(client)
    return clients


@pytest.mark.parametrize("count", [3, 40])
def test_health_is_answered_while_bombs_are_unpacked(models, tmp_path, count):
    with served(models, "--request-memory", "8GiB", folder=tmp_path) as server:
        warm(server)
        client, times = Client(server.http), []
        clients = bombs(server, count)
        open_ones = list(clients)
        while open_ones:
            begin = time.perf_counter()
            response, _ = client.ask("GET", "/v2/health/ready")
            times.append(time.perf_counter() - begin)
            assert response.status == 200
            for bomb in list(open_ones):
                bomb.setblocking(False)
                try:
                    answer = bomb.recv(12)
                except BlockingIOError:
                    continue
                assert answer[-3:] == b"400", answer
                open_ones.remove(bomb)
        for bomb in clients:
            bomb.close()
        print(f"count: {len(times)} health checks beside {count} bombs: median {sorted(times)[len(times) // 2] * 1e3:.2f} ms, longest {max(times) * 1e3:.1f} ms")
        # More than one was answered before the bombs were, which take some hundred milliseconds.
        assert len(times) > 3
        Figures(server).wait_until_nothing_is_held()


def test_sigterm_waits_for_no_half_request_and_no_idle_stream(models, tmp_path):
    import tritonclient.grpc as grpcclient

    with served(models, "--exit-timeout-secs", "3600", folder=tmp_path) as server:
        warm(server)
        triton = grpcclient.InferenceServerClient(server.grpc)
        answers = []
        triton.start_stream(callback=lambda result, error: answers.append((result, error)))
        tensor = grpcclient.InferInput("INPUT_0", [1, 16], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 16), np.float32))
        triton.async_stream_infer("net", [tensor])
        wait_until(lambda: answers, "the stream is not answered")  # and waits for the next request from now on
        assert answers[0][1] is None
        half = socket.create_connection(address_of(server))
        half.settimeout(PATIENCE)
        half.sendall(b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
        assert half.recv(100).startswith(b"HTTP/1.1 100")
        half.sendall(b"{")
        # A call of gRPC whose message does not come: the preface, SETTINGS, and half a frame of headers.
        http2 = socket.create_connection(tuple(server.grpc.rsplit(":", 1)))
        http2.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">IBI", 0, 4, 0)[1:] + b"\x00\x00\x40\x01\x00\x00\x00\x00\x01")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0, server.errors()
        assert "every request was answered" in server.errors()
        half.close()
        http2.close()
        triton.stop_stream(cancel_requests=True)


def test_beyond_its_connections_it_answers_health(models, tmp_path):
    with served(models, "--max-connections", "4", folder=tmp_path) as server:
        warm(server)
        clients = []
        for _ in range(4):
            client = socket.create_connection(address_of(server))
            client.settimeout(PATIENCE)
            client.sendall(b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 100")
            clients.append(client)
        assert healthy(server)
        response, data = Client(server.http).ask("GET", "/v2/models/net")
        assert response.status == 503 and response.headers["Retry-After"] == "1" and "connections" in json.loads(data)["error"]
        assert "all 4 connections that --max-connections allows are there" in server.errors()
        for client in clients:
            client.close()

        def there_is_room():
            response, _ = Client(server.http).ask("GET", "/v2/models/net")
            return response.status == 200

        wait_until(there_is_room, "their places are not free again")
