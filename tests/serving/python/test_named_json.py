"""JSON that names tensors and nothing else: TensorFlow Serving's predict, and answers in parts by generate_stream."""

import base64
import http.client
import json
import queue

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

import sluice as sl
from programs import PATIENCE, expected, save, served
from test_programs import ask
from test_tritonclient import Echo, Two, save_graph


class Letters(sl.nn.Graph):
    """The likeliest token after a window of four, and the window that it makes."""

    def __init__(self):
        super().__init__(name="letters")
        sl.manual_seed(3)
        self.embedding = sl.nn.Embedding(13, 8)
        self.head = sl.nn.Linear(32, 13)

    def build(self, tokens):
        token = self.head(self.embedding(tokens).flatten(1)).argmax(1)
        return token, sl.cat([tokens[:, 1:], token.unsqueeze(1)], dim=1)


GENERATE = """
model_transaction_policy { decoupled: true }
parameters { key: "feedback" value { string_value: "OUTPUT_1:INPUT_0" } }
parameters { key: "max_responses" value { string_value: "64" } }
"""
PROMPT = [[1, 2, 3, 4]]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    save(root, "net", version=1, seed=0)
    save(root, "net", version=2, seed=1, config="""version_policy { all {} }
parameters { key: "version_labels" value { string_value: "stable:1" } }""")
    save(root, "batches", batch=4, config="max_batch_size: 4\n")
    save_graph(Two(name="two"), root / "two" / "1" / "model", sl.zeros(3), sl.zeros(3))
    save_graph(Echo(name="text"), root / "text" / "1" / "model", sl.zeros(8, dtype=sl.uint8))
    (root / "text" / "config.pbtxt").write_text("""
input { name: "INPUT_0" data_type: TYPE_STRING dims: [1] }
output { name: "OUTPUT_0" data_type: TYPE_STRING dims: [1] }""")
    with sl.no_grad():
        save_graph(Letters(), root / "letters" / "1" / "model", sl.tensor(PROMPT))
    (root / "letters" / "config.pbtxt").write_text(GENERATE)
    return root


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory):
    with served(repository, folder=tmp_path_factory.mktemp("log")) as running:
        yield running


X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16)


@pytest.fixture(scope="module")
def logits(repository):
    return [expected(sl.load_graph(repository / "net" / version / "model"), X) for version in ("1", "2")]


def predict(server, model, body, version=""):
    return ask(f"{server.http}/v1/models/{model}{version}:predict", body)


def test_rows_and_columns(server, logits):  # TFS-06
    rows = X.tolist()
    for body in ({"instances": rows}, {"instances": [{"INPUT_0": rows[0]}]}, {"signature_name": "serving_default", "instances": rows}):
        status, answer = predict(server, "net", body)
        assert status == 200 and list(answer) == ["predictions"], answer
        np.testing.assert_array_equal(np.float32(answer["predictions"]), logits[1])
    for body in ({"inputs": rows}, {"inputs": {"INPUT_0": rows}}):
        status, answer = predict(server, "net", body)
        assert status == 200 and list(answer) == ["outputs"], answer
        np.testing.assert_array_equal(np.float32(answer["outputs"]), logits[1])


def test_versions_and_labels(server, logits):
    for version, wanted in (("/versions/1", 0), ("/versions/2", 1), ("/labels/stable", 0)):
        status, answer = predict(server, "net", {"instances": X.tolist()}, version)
        assert status == 200, answer
        np.testing.assert_array_equal(np.float32(answer["predictions"]), logits[wanted])
    status, answer = ask(f"{server.http}/v1/models/net")
    versions = {v["version"]: (v["state"], v["status"]["error_code"]) for v in answer["model_version_status"]}
    assert status == 200 and versions == {"1": ("AVAILABLE", "OK"), "2": ("AVAILABLE", "OK")}
    assert ask(f"{server.http}/v1/models/nobody")[0] == 404


def test_several_outputs_and_batches(server, repository):
    status, answer = predict(server, "two", {"inputs": {"INPUT_0": [5, 6, 7], "INPUT_1": [1, 2, 3]}})
    assert status == 200 and answer == {"outputs": {"OUTPUT_0": [4.0, 4.0, 4.0], "OUTPUT_1": [10.0, 12.0, 14.0]}}
    status, answer = predict(server, "two", {"instances": [{"INPUT_0": v, "INPUT_1": 1} for v in (5, 6, 7)]})
    assert status == 200 and answer == {"predictions": [{"OUTPUT_0": v - 1.0, "OUTPUT_1": 2.0 * v} for v in (5, 6, 7)]}
    rows = np.arange(48, dtype=np.float32).reshape(3, 16) / 48
    status, answer = predict(server, "batches", {"instances": rows.tolist()})
    graph = sl.load_graph(repository / "batches" / "1" / "model")
    np.testing.assert_allclose(np.float32(answer["predictions"]), expected(graph, np.vstack([rows, rows[:1]]))[:3], atol=1e-5)


def test_bytes_as_base64(server):
    word = base64.b64encode(b"\0grau78").decode()
    assert predict(server, "text", {"inputs": [{"b64": word}]}) == (200, {"outputs": ["\0grau78\0"]})
    word = base64.b64encode(b"\0\xff345678").decode()
    status, answer = predict(server, "text", {"inputs": [{"b64": word}]})
    assert status == 400 and "element 0 is no UTF-8, which strings of JSON are" in answer["error"], answer
    status, answer = predict(server, "text", {"instances": ["abcdefgh"]})
    assert (status, answer) == (200, {"predictions": ["abcdefgh"]})
    assert predict(server, "text", {"inputs": [{"b64": "%"}]}) == (400, {"error": "predict: b64 is no base64"})


@pytest.mark.parametrize("body, part", [
    ({}, "it must have 'instances' or 'inputs'"),
    ({"instances": [], "inputs": []}, "it must have 'instances' or 'inputs'"),
    ({"instances": {"INPUT_0": 1}}, "must be a list"),
    ({"instances": X.tolist(), "more": 1}, "'more'"),
    ({"instances": [[1, 2], [3]]}, "a list of 1 beside one of 2"),
    ({"instances": [[1, [2]]]}, "not equally deep"),
    ({"instances": [[1] * 15]}, "INPUT_0"),
    ({"instances": [["a"] * 16]}, "FP32"),
    ({"inputs": {"x9": [[1] * 16]}}, "x9"),
    ({"instances": [{"INPUT_0": [1] * 16}, {"x": 1}]}, "same names"),
    ({"instances": [{"INPUT_0": [1] * 16, "x": 1}]}, "'x'"),
    ({"instances": [[{"a": 1}]]}, "b64"),
    ([], "object"),
])
def test_what_is_wrong_is_named(server, body, part):
    status, answer = predict(server, "net", body)
    assert status == 400 and part in answer["error"], answer
    status, answer = predict(server, "net", {"instances": X.tolist()})
    assert status == 200


def written(repository, count):
    graph, window, tokens = sl.load_graph(repository / "letters" / "1" / "model"), sl.tensor(PROMPT), []
    for _ in range(count):
        token, window = graph(window)
        tokens.append(int(token.item()))
    return tokens


def stream(server, body, path="letters/generate_stream"):
    """Status, content type and events."""
    connection = http.client.HTTPConnection(server.http, timeout=PATIENCE)
    connection.request("POST", f"/v2/models/{path}", json.dumps(body))
    response = connection.getresponse()
    if response.status != 200:
        return response.status, response.getheader("Content-Type"), json.loads(response.read())
    events = [json.loads(line.removeprefix(b"data: ")) for line in response.read().split(b"\n\n") if line]
    connection.request("GET", "/v2/health/live")  # the connection goes on
    assert connection.getresponse().status == 200
    connection.close()
    return 200, response.getheader("Content-Type"), events


def test_tokens_come_as_events(server, repository):  # TRI-04
    status, kind, events = stream(server, {"INPUT_0": PROMPT, "id": "7", "parameters": {"max_tokens": 20}})
    assert status == 200 and kind == "text/event-stream", events
    assert [event["OUTPUT_0"] for event in events] == written(repository, 20)
    assert all(event["model_name"] == "letters" and event["id"] == "7" for event in events)
    assert [event["OUTPUT_0"] for event in stream(server, {"INPUT_0": PROMPT[0]})[2]] == written(repository, 64)  # the model's own limit


def test_events_of_wrong_requests(server):
    assert stream(server, {"INPUT_0": [1, 2, 3]})[0] == 400
    assert stream(server, {"INPUT_0": PROMPT, "parameters": {"max_tokens": 65}}) == (
        400, "application/json", {"error": "infer: parameter 'max_tokens' must be a number of 1 to 64"})
    assert stream(server, {"INPUT_0": PROMPT}, "nobody/generate_stream")[0] == 404
    status, _, answer = stream(server, {"INPUT_0": PROMPT, "parameters": {"max_tokens": 2}}, "letters/generate")
    assert status == 501 and "generate_stream" in answer["error"]
    # A model of one response has one event, and one token needs no stream.
    assert stream(server, {"INPUT_0": X.tolist()}, "net/generate_stream")[2][0]["model_version"] == "2"
    status, answer = ask(f"{server.http}/v2/models/letters/generate", {"INPUT_0": PROMPT, "parameters": {"max_tokens": 1}})
    assert status == 200 and isinstance(answer["OUTPUT_0"], int)


def test_tokens_come_over_a_grpc_stream(server, repository):  # TRI-04
    answers = queue.Queue()
    x = triton_grpc.InferInput("INPUT_0", (1, 4), "INT64")
    x.set_data_from_numpy(np.array(PROMPT, np.int64))
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        client.async_stream_infer("letters", [x], request_id="a", parameters={"max_tokens": 12})
        got = []
        while not got or not got[-1].get_response().parameters["triton_final_response"].bool_param:
            result, error = answers.get(timeout=PATIENCE)
            assert error is None, error
            got.append(result)
        client.stop_stream()
    assert [int(r.as_numpy("OUTPUT_0")[0]) for r in got] == written(repository, 12)


def test_several_writers_at_once(server, repository):
    """Steps of several requests take turns, and each goes on by itself."""
    answers, prompts = queue.Queue(), [[[i, 2, 3, 4]] for i in range(8)]
    graph = sl.load_graph(repository / "letters" / "1" / "model")
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for i, prompt in enumerate(prompts):
            x = triton_grpc.InferInput("INPUT_0", (1, 4), "INT64")
            x.set_data_from_numpy(np.array(prompt, np.int64))
            client.async_stream_infer("letters", [x], request_id=str(i), parameters={"max_tokens": 10})
        tokens = {str(i): [] for i in range(8)}
        for _ in range(80):
            result, error = answers.get(timeout=PATIENCE)
            assert error is None, error
            tokens[result.get_response().id].append(int(result.as_numpy("OUTPUT_0")[0]))
        client.stop_stream()
    for i, prompt in enumerate(prompts):
        window, wanted = sl.tensor(prompt), []
        for _ in range(10):
            token, window = graph(window)
            wanted.append(int(token.item()))
        assert tokens[str(i)] == wanted
