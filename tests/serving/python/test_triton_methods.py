"""No public method of Triton's clients is left out: those that no other test calls, and that there are no more."""

import json
import pathlib
import re

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient._plugin import InferenceServerClientPlugin
from tritonclient.utils import InferenceServerException

import sluice as sl
from programs import expected, save, served

TRANSPORTS = {"http": triton_http, "grpc": triton_grpc}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    save(root, "net", version=1, seed=0)
    with served(root, folder=tmp_path_factory.mktemp("log")) as running:
        running.graph = sl.load_graph(root / "net" / "1" / "model")
        yield running


@pytest.fixture(params=TRANSPORTS)
def client(request, server):
    address = server.http if request.param == "http" else server.grpc
    with TRANSPORTS[request.param].InferenceServerClient(address) as c:
        yield c


def rows():
    return np.random.default_rng(0).normal(size=(1, 16)).astype(np.float32)


def test_every_method_is_called_by_a_test():  # CLI-06
    texts = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("*.py"))
    for module in TRANSPORTS.values():
        methods = [n for n in vars(module.InferenceServerClient) if not n.startswith("_")]
        assert len(methods) > 20 and [n for n in methods if not re.search(rf"\.{n}\(", texts)] == [], module.__name__


def test_trace_settings_are_updated(client):  # CLI-06
    told = client.update_trace_settings(settings={"trace_rate": "7"})
    assert "7" in json.dumps(told if isinstance(told, dict) else str(told))
    told = client.update_trace_settings(model_name="net", settings={"trace_rate": "9"})
    assert "9" in json.dumps(told if isinstance(told, dict) else str(told))
    client.update_trace_settings(model_name="net", settings={"trace_rate": None})


def test_memory_of_cuda_is_refused_with_a_reason(client):  # CLI-06
    calls = [lambda: client.get_cuda_shared_memory_status(), lambda: client.unregister_cuda_shared_memory("region"),
             lambda: client.register_cuda_shared_memory("region", b"AAAA", 0, 16)]
    for call in calls:
        with pytest.raises(InferenceServerException, match="(?i)cuda"):
            call()
    assert client.is_server_ready()


class Marked(InferenceServerClientPlugin):
    """Adds a header to each request."""

    def __init__(self):
        self.calls = 0

    def __call__(self, request):
        self.calls += 1
        request.headers["x-marked"] = "yes"


def test_plugins_change_requests_and_the_server_takes_them(client):  # CLI-06
    plugin = Marked()
    client.register_plugin(plugin)
    assert client.plugin() is plugin and client.is_server_ready() and plugin.calls == 1
    client.unregister_plugin()
    assert client.is_server_ready() and plugin.calls == 1


def test_bodies_made_and_read_without_a_client(server):  # CLI-06
    tensor = triton_http.InferInput("INPUT_0", [1, 16], "FP32")
    tensor.set_data_from_numpy(rows())
    body, head = triton_http.InferenceServerClient.generate_request_body([tensor])
    with triton_http.InferenceServerClient(server.http) as client:
        answer = client._post("v2/models/net/infer", request_body=body, headers={"Inference-Header-Content-Length": str(head)} if head else {},
                              query_params=None)
        assert answer.status_code == 200
        result = triton_http.InferenceServerClient.parse_response_body(answer.read(), header_length=int(answer.get("inference-header-content-length")))
    np.testing.assert_array_equal(result.as_numpy("OUTPUT_0"), expected(server.graph, rows()))
