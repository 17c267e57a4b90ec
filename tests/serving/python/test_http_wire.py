"""HTTP byte by byte: requests as they stand on the wire, and what must come back. No client library is between."""

import gzip
import json
import random
import socket
import struct
import threading
import zlib

import numpy as np
import pytest

import sluice as sl
from programs import expected, save, served
from test_tritonclient import Echo, Two, save_bags, save_graph
from waiting import PATIENCE, wait_until


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


@pytest.fixture(scope="module")
def logits(repository):
    return expected(sl.load_graph(repository / "net" / "1" / "model"), X)


def values(answer):
    status, headers, body = answer
    assert status == 200, body
    assert headers["content-type"] == "application/octet-stream"
    return np.frombuffer(body[int(headers["inference-header-content-length"]):], np.float32)


# The calls by path. Each: request, status, and what the body must hold.
CALLS = {
    "live": (get("/v2/health/live"), 200, b""),
    "ready": (get("/v2/health/ready"), 200, b""),
    "model ready": (get("/v2/models/net/ready"), 200, b""),
    "version ready": (get("/v2/models/net/versions/1/ready"), 200, b""),
    "no such version": (get("/v2/models/net/versions/8/ready"), 404, b"error"),
    "no such model": (get("/v2/models/nobody/ready"), 404, b"Request for unknown model: 'nobody'"),
    "server": (get("/v2"), 200, b'"extensions":['),
    "model": (get("/v2/models/net"), 200, b'"datatype":"FP32","shape":[1,16]'),
    "config": (get("/v2/models/net/config"), 200, b'"max_batch_size":0'),
    "stats": (get("/v2/models/net/stats"), 200, b'"inference_stats"'),
    "all stats": (get("/v2/models/stats"), 200, b'"model_stats":['),
    "index, no length": (b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n\r\n", 200, b'"state":"READY"'),
    "logging": (get("/v2/logging"), 200, b'"log_verbose_level":0'),
    "trace": (get("/v2/trace/setting"), 200, b'"trace_level":['),
    "trace of a model": (get("/v2/models/net/trace/setting"), 200, b'"trace_level":['),
    "trace of no model": (get("/v2/models/nobody/trace/setting"), 404, b"nobody"),
    "trace without a file": (post("/v2/trace/setting", '{"trace_level":["TIMESTAMPS"]}'), 400, b"without a trace file"),
    "trace of a strange level": (post("/v2/trace/setting", '{"trace_level":["MAX"]}'), 400, b"level 'MAX'"),
    "trace by two rates": (post("/v2/trace/setting", '{"trace_rate":["1","2"]}'), 400, b"trace_rate"),
    "trace by no setting": (post("/v2/trace/setting", '{"trace_speed":"1"}'), 400, b"trace_speed"),
    "trace in another mode": (post("/v2/trace/setting", '{"trace_mode":"opentelemetry"}'), 501, b"when the server is started"),
    "trace by a list": (post("/v2/trace/setting", "[1]"), 400, b"object"),
    "trace from a strange parent": (get("/v2/health/live", "traceparent: " + "0" * 4000), 200, b""),
    "query is not the path": (get("/v2/health/live?x=1"), 200, b""),
    "percent": (get("/v2/models/n%65t/ready"), 200, b""),
    "percent twice": (get("/v2/models/n%2565t/ready"), 400, b"error"),
    "bad percent": (get("/v2/models/n%6/ready"), 400, b"two digits"),
    "traversal": (get("/v2/models/..%2F..%2Fetc/ready"), 400, b"error"),
    "dots": (get("/v2/models/../ready"), 400, b"error"),
    "nul": (get("/v2/models/a%00b/ready"), 400, b"error"),
    "unicode": (get("/v2/models/%C3%BC/ready"), 400, b"error"),
    "no such page": (get("/v3"), 404, b'{"error":"Not Found"}'),
    "root": (get("/"), 404, b'{"error":"Not Found"}'),
    "wrong method": (get("/v2/health/live", method="POST"), 405, b'{"error":"Method Not Allowed"}'),
    "infer by GET": (get("/v2/models/net/infer"), 405, b'{"error":"Method Not Allowed"}'),
    "load needs explicit": (post("/v2/repository/models/net/load", "{}"), 403, b"explicit"),
    "load of a bad name": (post("/v2/repository/models/%20/load", "{}"), 400, b"error"),
    "nested index": (post("/v2/repository/index", "[" * 1000), 400, b"JSON"),
    "cuda memory": (get("/v2/cudasharedmemory/status"), 501, b"CUDA"),
    "shared memory is off": (post("/v2/systemsharedmemory/region/r/register", '{"key":"/r","offset":0,"byte_size":4}'), 403, b"--allow-shared-memory"),
    "shared memory": (get("/v2/systemsharedmemory/status"), 200, b"[]"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(wire, name):  # CLI-01, CLI-02, CLI-04, TRI-11
    request, status, part = CALLS[name]
    got, headers, body = wire.send(request).answer()
    assert got in (status if isinstance(status, tuple) else (status,)), body
    assert part in body and headers["content-type"] == "application/json"
    if got >= 400:
        assert list(json.loads(body)) == ["error"]
    assert wire.send(get("/v2/health/live")).answer()[0] == 200  # the connection goes on


# Requests for inference that are wrong, and what the error must say.
def head(**changes):
    one = {"name": "INPUT_0", "datatype": "FP32", "shape": [1, 16], "data": [0.0] * 16}
    whole = {"inputs": [{**one, **changes.pop("input", {})}], **changes}
    for item in whole["inputs"]:
        for key in [k for k, v in item.items() if v is ...]:
            del item[key]
    return json.dumps(whole)


WRONG = {
    "no JSON": ("{", 400, "JSON"),
    "a list": ("[]", 400, "object"),
    "no inputs": ("{}", 400, "inputs"),
    "inputs that are none": ('{"inputs":3}', 400, "list"),
    "depth": ('{"inputs":[{"name":"INPUT_0","datatype":"FP32","shape":[1,16],"data":' + "[" * 200 + "]" * 200 + "}]}", 400, "JSON"),
    "id": (head(id=3), 400, "id"),
    "name": (head(input={"name": "x9"}), 400, "x9"),
    "no name": (head(input={"name": ...}), 400, "name"),
    "datatype": (head(input={"datatype": "FP33"}), 400, "FP33"),
    "other datatype": (head(input={"datatype": "INT32", "data": [0] * 16}), 400, "INPUT_0"),
    "no shape": (head(input={"shape": ...}), 400, "shape"),
    "negative dim": (head(input={"shape": [-1, 16]}), 400, "negative"),
    "overflow": (head(input={"shape": [1 << 40, 1 << 40]}), 413, "shape"),
    "wrapping overflow": (head(input={"shape": [4194305, 4194305, 211106198978564]}), 413, "shape"),
    "too few": (head(input={"data": [0.0] * 15}), 400, "15 elements"),
    "too many": (head(input={"data": [0.0] * 17}), 400, "17 elements"),
    "strings": (head(input={"data": ["a"] * 16}), 400, "FP32"),
    "beyond float": (head(input={"data": [1e300] * 16}), 400, "FP32"),
    "no data": (head(input={"data": ...}), 400, "one of"),
    "two kinds of data": (head(input={"parameters": {"binary_data_size": 64}}), 400, "one of"),
    "region without size": (head(input={"data": ..., "parameters": {"shared_memory_region": "r"}}), 400, "byte_size"),
    "shared memory": (head(input={"data": ..., "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 64}}), 403, "shared memory"),
    "unknown output": (head(outputs=[{"name": "OUT"}]), 400, "OUT"),
    "output twice": (head(outputs=[{"name": "OUTPUT_0"}] * 2), 400, "twice"),
    "reserved": (head(parameters={"triton_x": 1}), 400, "reserved"),
    "priority": (head(parameters={"priority": -1}), 400, "priority"),
    "timeout": (head(parameters={"timeout": "soon"}), 400, "timeout"),
    "parameter": (head(parameters={"a": [1]}), 400, "parameter 'a'"),
    "bytes that are not there": (head(input={"data": ..., "parameters": {"binary_data_size": 64}}), 400, "follow the JSON"),
    "binary beyond the limit": (head(input={"data": ..., "parameters": {"binary_data_size": 1 << 62}}), 413, "binary data"),
    "binary overflow": (json.dumps({"inputs": [{"name": f"i{k}", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": (1 << 64) - 1}} for k in range(2)]}), 413, "binary data"),
    "JSON expands": ('{"inputs":[{"name":"INPUT_0","datatype":"FP64","shape":[1000000],"data":[' + ",".join(["1"] * 1000000) + "]}]}", 413, ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_requests_for_inference(wire, name):  # CLI-14
    body, status, part = WRONG[name]
    got, headers, answer = wire.send(post("/v2/models/net/infer", body)).answer()
    assert got == status, answer
    assert part in json.loads(answer)["error"], answer
    np.testing.assert_array_equal(values(wire.send(infer(X)).answer()), values(wire.send(infer(X)).answer()))


def bag(shape, data=..., **changes):
    one = {"name": "x", "datatype": "FP32", "shape": shape, "data": [0.5] * max(0, shape[-1]) if data is ... else data} | changes
    return json.dumps({"inputs": [one]})


WRONG_RAGGED = {
    "several rows": (bag([2, 3], [0.5] * 6), 400, "must be [1,-1]: one row"),
    "no rows": (bag([0, 3], []), 400, "must be [1,-1]"),
    "flat": (bag([3]), 400, "must be [1,-1]"),
    "longer than a step": (bag([1, 65]), 400, "at most 64 rows in a step"),
    "negative": (bag([1, -3], [0.5] * 3), 400, "negative"),
    "overflow": (bag([1, 1 << 62], [0.5]), 413, "shape"),
    "too few": (bag([1, 5], [0.5] * 4), 400, "4 elements"),
    "other datatype": (bag([1, 3], [1] * 3, datatype="INT32"), 400, "datatype is INT32; must be FP32"),
    "what the server makes": (bag([1, 3], [1] * 3, name="ends", datatype="INT32"), 400, "unexpected input 'ends'"),
}


@pytest.mark.parametrize("name", WRONG_RAGGED)
def test_wrong_requests_of_different_lengths(wire, name):  # TRI-14
    body, status, part = WRONG_RAGGED[name]
    got, headers, answer = wire.send(post("/v2/models/bags/infer", body)).answer()
    assert got == status and part in json.loads(answer)["error"], answer
    for length in (1, 64, 0):
        got, headers, answer = wire.send(post("/v2/models/bags/infer", bag([1, length]))).answer()
        assert got == 200 and [output["shape"] for output in json.loads(answer)["outputs"]] == [[1, length, 2], [1, 2]]
    # The same without a head: the bytes of the only input.
    raw = post("/v2/models/bags/infer", np.ones(5, np.float32).tobytes(), "Inference-Header-Content-Length: 0")
    status, headers, body = wire.send(raw).answer()
    assert status == 200, body
    assert json.loads(body[:int(headers["inference-header-content-length"])])["outputs"][0]["shape"] == [1, 5, 2]


def test_json_in_json_out(wire, logits):  # CLI-10, CLI-12
    body = json.dumps({"id": "abc42", "inputs": [{"name": "INPUT_0", "datatype": "FP32", "shape": [1, 16], "data": X.tolist()}]})
    status, headers, answer = wire.send(post("/v2/models/net/infer", body)).answer()
    answer = json.loads(answer)
    assert status == 200 and answer["id"] == "abc42" and answer["model_name"] == "net" and answer["model_version"] == "1"
    output, = answer["outputs"]
    assert output["shape"] == [1, 3] and output["datatype"] == "FP32" and headers["content-type"] == "application/json"
    np.testing.assert_array_equal(np.float32(output["data"]), logits.ravel())
    without = json.loads(wire.send(post("/v2/models/net/infer", body.replace('"id": "abc42", ', ""))).answer()[2])
    assert "id" not in without


def test_binary_in_binary_out(wire, logits):  # CLI-08
    status, headers, body = wire.send(infer(X, outputs=[{"name": "OUTPUT_0", "parameters": {"binary_data": True}}])).answer()
    length = int(headers["inference-header-content-length"])
    output, = json.loads(body[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 12} and "data" not in output
    np.testing.assert_array_equal(np.frombuffer(body[length:], np.float32), logits.ravel())
    status, headers, body = wire.send(infer(X, outputs=[{"name": "OUTPUT_0", "parameters": {"binary_data": False}}])).answer()
    assert "inference-header-content-length" not in headers and len(json.loads(body)["outputs"][0]["data"]) == 3


def test_a_body_without_a_head(wire, logits):
    raw = post("/v2/models/net/infer", X.tobytes(), "Inference-Header-Content-Length: 0")
    np.testing.assert_array_equal(values(wire.send(raw).answer()), logits.ravel())
    for wrong, part in ((X.tobytes() + b"x", b"65 bytes"), (b"", b"0 bytes"), (X.tobytes() * 2, b"128 bytes")):
        status, _, body = wire.send(post("/v2/models/net/infer", wrong, "Inference-Header-Content-Length: 0")).answer()
        assert status == 400 and part in body
    status, _, body = wire.send(post("/v2/models/two/infer", bytes(12), "Inference-Header-Content-Length: 0")).answer()
    assert status == 400 and b"models of one input" in body


@pytest.mark.parametrize("length", ["-1", "+5", "x", "", "99999999999999999999999", "1000000"])
def test_header_lengths_out_of_range(wire, length):
    status, _, body = wire.send(post("/v2/models/net/infer", b"{}", f"Inference-Header-Content-Length: {length}")).answer()
    assert status == 400 and b"Inference-Header-Content-Length" in body


def test_classification_and_no_json_for_half(wire, logits):  # CLI-09
    order = np.argsort(-logits[0])
    answer = wire.send(infer(X, outputs=[{"name": "OUTPUT_0", "parameters": {"classification": 2, "binary_data": False}}])).answer()
    output, = json.loads(answer[2])["outputs"]
    assert output["datatype"] == "BYTES" and output["shape"] == [2]
    assert output["data"] == [f"{logits[0, i]:f}:{i}" for i in order[:2]]
    body = json.dumps({"inputs": [{"name": "INPUT_0", "datatype": "FP16", "shape": [2], "data": [1, 2]}]})
    status, _, answer = wire.send(post("/v2/models/half/infer", body)).answer()
    assert status == 400 and b"FP16 has no form in JSON" in answer


def chunks(body, size):
    return b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + size]), body[i:i + size]) for i in range(0, len(body), size)) + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_chunks(wire, logits, size):
    body, length = binary(X)
    request = f"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n{length}\r\n\r\n"
    for _ in range(2):
        np.testing.assert_array_equal(values(wire.send(request.encode() + chunks(body, size)).answer()), logits.ravel())


@pytest.mark.parametrize("coding, pack", [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_packed_bodies(wire, logits, coding, pack):  # CLI-18
    body, length = binary(X)
    answer = wire.send(post("/v2/models/net/infer", pack(body), length, f"Content-Encoding: {coding}")).answer()
    np.testing.assert_array_equal(values(answer), logits.ravel())
    status, headers, packed = wire.send(infer(X, f"Accept-Encoding: br;q=1.0, {coding};q=0.5, identity;q=0.1")).answer()
    assert headers["content-encoding"] == coding
    plain = gzip.decompress(packed) if coding == "gzip" else zlib.decompress(packed)
    np.testing.assert_array_equal(np.frombuffer(plain[int(headers["inference-header-content-length"]):], np.float32), logits.ravel())
    for broken in (pack(body)[:-5], pack(body) + b"more", b"nonsense"):
        status, _, answer = wire.send(post("/v2/models/net/infer", broken, length, f"Content-Encoding: {coding}")).answer()
        assert status == 400 and b"stream" in answer
    status, _, answer = wire.send(post("/v2/models/net/infer", pack(bytes(64 << 20)), f"Content-Encoding: {coding}")).answer()
    assert status == 413 and b"unpacks" in answer


def test_an_unknown_coding(wire):
    status, headers, body = wire.send(post("/v2/models/net/infer", b"{}", "Content-Encoding: br")).answer()
    assert status == 501 and b"gzip and deflate" in body


# A request that two readers could take for two different ones is refused, and the connection closed (SERVING.md, section
# 9).
BODY = "Content-Length: 2"
STRICT = {
    "gzip and a length": f"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n{BODY}\r\n\r\n{{}}",
    "chunked and a length": f"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n{BODY}\r\n\r\n0\r\n\r\n",
    "a length and chunked": f"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n{BODY}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two encodings": "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an encoding list": "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "two lengths": f"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n{BODY}\r\nContent-Length: 3\r\n\r\n{{}}",
    "equal lengths": f"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n{BODY}\r\n{BODY}\r\n\r\n{{}}",
    "space before colon": "GET /v2 HTTP/1.1\r\nHost : x\r\n\r\n",
    "length +2": "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}",
    "length 2^64+5": "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551621\r\n\r\n{}",
    "length 1 TiB": "POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1099511627776\r\n\r\n{}",
    "bare line feed": "GET /v2 HTTP/1.1\nHost: x\r\n\r\n\r\n",
    "folded": "GET /v2 HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "no host": "GET /v2 HTTP/1.1\r\n\r\n",
    "two hosts": "GET /v2 HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "two header lengths": "POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nInference-Header-Content-Length: 2\r\nInference-Header-Content-Length: 1\r\n\r\n{}",
    "no name": "GET /v2 HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
    "no protocol": "GET /v2\r\nHost: x\r\n\r\n",
    "version 3": "GET /v2 HTTP/3.0\r\nHost: x\r\n\r\n",
    "chunk size": "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "long header": "GET /v2 HTTP/1.1\r\nHost: x\r\nA: " + "a" * 20000 + "\r\n\r\n",
    "expectation": f"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n{BODY}\r\nExpect: tea\r\n\r\n{{}}",
}


@pytest.mark.parametrize("name", STRICT)
def test_ambiguous_requests_are_refused(server, wire, name):  # TRI-18
    status, headers, body = wire.send(STRICT[name]).answer()
    assert status in (400, 413, 417, 431, 501, 505), (status, body)
    assert headers["connection"] == "close" or status == 400
    assert "error" in json.loads(body)
    if headers["connection"] == "close":
        assert wire.closed()
    other = Wire(server)
    assert other.send(get("/v2/health/live")).answer()[0] == 200
    other.close()


def test_a_post_without_length_has_no_body(wire):
    for _ in range(3):
        assert wire.send("POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n\r\n").answer()[0] == 200


def test_expect_100_continue(wire, logits):
    body, length = binary(X)
    request = f"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n{length}\r\n\r\n"
    assert wire.send(request).answer()[0] == 100
    np.testing.assert_array_equal(values(wire.send(body).answer()), logits.ravel())
    refused = "POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n"
    assert wire.send(refused).answer()[0] == 413


def test_pipelined_requests_are_answered_in_order(wire, logits):  # CLI-19
    wire.send(infer(X) + get("/v2/health/live") + infer(X) + get("/nowhere") + infer(X))
    for kind in (0, 200, 0, 404, 0):
        answer = wire.answer()
        if kind:
            assert answer[0] == kind
        else:
            np.testing.assert_array_equal(values(answer), logits.ravel())


def test_http_1_0_and_close(server, wire):
    assert wire.send("GET /v2/health/live HTTP/1.0\r\n\r\n").answer()[1]["connection"] == "close"
    assert wire.closed()
    other = Wire(server)
    assert other.send(get("/v2/health/live", "Connection: close")).answer()[0] == 200 and other.closed()
    other.close()


def test_many_connections_and_slow_ones(server, logits):  # CLI-19, TRI-18
    slow = [Wire(server) for _ in range(50)]
    body, length = binary(X)
    whole = post("/v2/models/net/infer", body, length)
    for i, w in enumerate(slow):
        w.send(whole[:len(whole) * (i + 1) // 60])
    many = [Wire(server) for _ in range(256)]
    for round in range(4):
        for w in many:
            w.send(infer(X) if round % 2 else get("/v2/health/live"))
        for w in many:
            answer = w.answer()
            assert answer[0] == 200
            if round % 2:
                np.testing.assert_array_equal(values(answer), logits.ravel())
    for i, w in enumerate(slow):  # they are served when they get there
        rest = whole[len(whole) * (i + 1) // 60:]
        for k in range(0, len(rest), max(1, len(rest) // 20)):
            w.send(rest[k:k + max(1, len(rest) // 20)])
    for w in slow:
        np.testing.assert_array_equal(values(w.answer()), logits.ravel())
    for w in many + slow:
        w.close()


def test_clients_that_go_away(server):  # TRI-13
    before = server.fds()
    body, length = binary(X)
    whole = post("/v2/models/net/infer", body, length)
    for i in range(200):
        w = Wire(server)
        w.send(whole[:len(whole) * i // 200])
        if i % 2:
            w.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset instead of end
        w.close()
    wait_until(lambda: server.fds() <= before, lambda: (before, server.fds()))
    w = Wire(server)
    assert w.send(get("/v2/health/ready")).answer()[0] == 200
    w.close()


def mutant(random, seeds):
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice([1, 1, 2, 5])):
        kind, at = random.randrange(6), random.randrange(len(data))
        if kind == 0:
            data[at] = random.randrange(256)
        elif kind == 1:
            del data[at:at + random.randrange(1, 20)]
        elif kind == 2:
            data[at:at] = bytes(random.randrange(256) for _ in range(random.randrange(1, 10)))
        elif kind == 3:
            data[at:at] = random.choice([b"\r\n", b"\0", b"9" * 30, b"-1", b"{", b"]", b"chunked", b"%", b"\xff\xfe", b": "])
        elif kind == 4:
            other = random.choice(seeds)
            data[at:] = other[random.randrange(len(other)):]
        else:
            data[at:at] = data[at:at + 40]
        if not data:
            data = bytearray(b"\r\n")
    return bytes(data)


@pytest.mark.soak
def test_thousands_of_malformed_requests(server, repetitions, count):  # CLI-14, TRI-18
    """Each is answered or its connection closed, and the server answers the next good one."""
    each = repetitions(1250, 25_000)
    body, length = binary(X)
    seeds = [infer(X), post("/v2/models/net/infer", head()), post("/v2/repository/index", "{}"), get("/v2/models/net/config"),
             post("/v2/models/net/infer", gzip.compress(body), length, "Content-Encoding: gzip"),
             f"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n{length}\r\n\r\n".encode() + chunks(body, 9),
             post("/v2/logging", '{"log_verbose_level":0}'), post("/v2/trace/setting", '{"trace_rate":"1000"}')]
    failures = []

    def attack(seed):
        rng = random.Random(seed)
        for _ in range(each):
            data = mutant(rng, seeds)
            w = Wire(server)
            try:
                w.send(data)
                w.socket.shutdown(socket.SHUT_WR)
                while (answer := w.answer()) is not None:
                    if answer[0] >= 500 and answer[0] not in (501, 503, 504, 505):
                        failures.append((data, answer))
            except (ConnectionResetError, BrokenPipeError):
                pass
            except (AssertionError, OSError, ValueError, IndexError) as error:
                failures.append((data, repr(error)))
            w.close()

    threads = [threading.Thread(target=attack, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    count("malformed HTTP requests", len(threads) * each, "answered or cut off")
    assert not failures, failures[:2]
    w = Wire(server)
    assert w.send(infer(X)).answer()[0] == 200
    w.close()
