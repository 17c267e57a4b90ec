"""HTTP byte by byte: requests as they stand on the wire, and what must come back. No client library is between."""

import gzip
import json
import socket
import struct
import zlib

import numpy as np
import pytest

import sluice as sl
from programs import expected
from waiting import wait_until
from wire import Wire, X, binary, chunks, get, infer, post, repository, server, values, wire  # noqa: F401


@pytest.fixture(scope="module")
def logits(repository):
    return expected(sl.load_graph(repository / "net" / "1" / "model"), X)


# What is asked for by path. Each: request, status, and what the body must hold.
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
