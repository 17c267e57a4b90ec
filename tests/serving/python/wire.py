"""What the tests of HTTP share: a server, and bytes to it and from it."""

import json
import socket

import numpy as np
import pytest

import sluice as sl
from programs import save, served
from test_tritonclient import Echo, Two, save_bags, save_graph
from waiting import PATIENCE


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    save(root, "net")
    save_graph(Two(name="two"), root / "two" / "1" / "model", sl.zeros(3), sl.zeros(3))
    save_graph(Echo(name="half"), root / "half" / "1" / "model", sl.zeros(2, dtype=sl.float16))
    save_bags(root, bags="")
    return root


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory):
    with served(repository, "--http-max-input-size", "4MiB", folder=tmp_path_factory.mktemp("log")) as running:
        yield running


class Wire:
    """A connection of bytes."""

    def __init__(self, server):
        host, port = server.http.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self.rest = b""

    def send(self, data):
        self.socket.sendall(data.encode() if isinstance(data, str) else data)
        return self

    def _more(self):
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        self.rest += data
        return bool(data)

    def answer(self):
        """(status, headers, body); None when the server has closed the connection."""
        while b"\r\n\r\n" not in self.rest:
            if not self._more():
                return None
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        status = int(lines[0].split()[1])
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        if status == 100:
            return status, headers, b""
        while len(self.rest) < int(headers["content-length"]):
            assert self._more(), "the answer is cut off"
        body, self.rest = self.rest[:int(headers["content-length"])], self.rest[int(headers["content-length"]):]
        return status, headers, body

    def closed(self):
        return not self.rest and not self._more()

    def close(self):
        self.socket.close()


@pytest.fixture
def wire(server):
    w = Wire(server)
    yield w
    w.close()


def get(path, *headers, method="GET", body=b""):
    length = [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *length, *headers, "", ""]).encode() + body


def post(path, body, *headers):
    body = body.encode() if isinstance(body, str) else body
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]).encode() + body


def binary(x, name="INPUT_0", datatype="FP32", outputs=None, **parameters):
    head = {"parameters": {"binary_data_output": True, **parameters},
            "inputs": [{"name": name, "datatype": datatype, "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}]}
    if outputs is not None:
        head["outputs"] = outputs
    head = json.dumps(head).encode()
    return head + x.tobytes(), f"Inference-Header-Content-Length: {len(head)}"


def infer(x, *headers, **options):
    body, length = binary(x, **options)
    return post("/v2/models/net/infer", body, length, *headers)


X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16)


def values(answer):
    status, headers, body = answer
    assert status == 200, body
    assert headers["content-type"] == "application/octet-stream"
    return np.frombuffer(body[int(headers["inference-header-content-length"]):], np.float32)


# Requests for inference that are wrong, and what the error must say.
def head(**changes):
    one = {"name": "INPUT_0", "datatype": "FP32", "shape": [1, 16], "data": [0.0] * 16}
    whole = {"inputs": [{**one, **changes.pop("input", {})}], **changes}
    for item in whole["inputs"]:
        for key in [k for k, v in item.items() if v is ...]:
            del item[key]
    return json.dumps(whole)


def chunks(body, size):
    return b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + size]), body[i:i + size]) for i in range(0, len(body), size)) + b"0\r\n\r\n"
