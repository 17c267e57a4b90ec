"""HTTP byte by byte: requests that are wrong, ambiguous or malformed, and what must come back."""

import gzip
import json
import random
import socket
import threading

import numpy as np
import pytest

from wire import Wire, X, binary, chunks, get, head, infer, post, repository, server, values, wire  # noqa: F401

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


# What two readers could take for two different requests is refused, and the connection closed (SERVING.md, section 9).
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
