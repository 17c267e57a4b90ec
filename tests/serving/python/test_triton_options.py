"""Triton's users set and send these first: floats of JSON that are none, texts, TLS, restricted calls, links, metrics."""

import os
import re
import resource
import ssl
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

import sluice as sl
from programs import PATIENCE, ROOT, save, served

TLS = ROOT / "tests/serving/tls"


class Shout(sl.nn.Graph):
    """Letters as they are, and how many of them: half of the text."""

    def build(self, text, lengths):
        return text.clone(), lengths // 2


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    save(root, "net")
    shout = Shout(name="shout")
    shout(sl.zeros(3, 64, dtype=sl.uint8), sl.zeros(3, dtype=sl.int32))
    (root / "shout/1").mkdir(parents=True)
    sl.save(shout, root / "shout/1/model")
    (root / "shout/config.pbtxt").write_text("""
max_batch_size: 3
input { name: "text" data_type: TYPE_STRING dims: [1] }
output { name: "OUTPUT_0" data_type: TYPE_STRING dims: [1] }
parameters { key: "string_lengths" value { string_value: "text:lengths, OUTPUT_0:output1" } }""")
    return root


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory):
    with served(repository, "--metrics-config", "summary_latencies=true", "--metrics-config", "histogram_latencies=true",
                "--http-restricted-api", "model-repository,logging:admin-key=s", "--grpc-restricted-protocol", "logging:admin-key=s",
                "--pinned-memory-pool-byte-size", "0", "--id", "mine", "--grpc-keepalive-time", "10000",
                folder=tmp_path_factory.mktemp("log")) as running:
        yield running


def given(name, array, dtype, **options):
    tensor = triton_http.InferInput(name, list(array.shape), dtype)
    tensor.set_data_from_numpy(array, **options)
    return tensor


def test_floats_that_are_no_numbers_travel_as_json(server):
    x = np.zeros((1, 16), np.float32)
    x[0, :3] = np.nan, np.inf, -np.inf
    with triton_http.InferenceServerClient(server.http) as client:
        answer = client.infer("net", [given("INPUT_0", x, "FP32", binary_data=False)],
                              outputs=[triton_http.InferRequestedOutput("OUTPUT_0", binary_data=False)])
        binary = client.infer("net", [given("INPUT_0", x, "FP32")]).as_numpy("OUTPUT_0")
    assert np.isnan(binary).any()
    np.testing.assert_array_equal(np.array(answer.as_numpy("OUTPUT_0"), np.float32), binary)


def test_texts_have_their_length(server):
    texts = [[b"eight by"], [b""], [b"\0\xff\0\xfe\0\0\0\0"]]
    with triton_http.InferenceServerClient(server.http) as client:
        x = given("text", np.array(texts, object), "BYTES")
        assert client.infer("shout", [x]).as_numpy("OUTPUT_0").tolist() == [[b"eigh"], [b""], [b"\0\xff\0\xfe"]]
        text = [triton_http.InferRequestedOutput("OUTPUT_0", binary_data=False)]
        with pytest.raises(InferenceServerException, match="element 2 is no UTF-8.*ask for binary data"):
            client.infer("shout", [x], outputs=text)
        x = given("text", np.array([["größer"]], object), "BYTES", binary_data=False)
        assert client.infer("shout", [x], outputs=text).as_numpy("OUTPUT_0").tolist() == [["grö"]]


def test_restricted_calls_need_their_header(server):
    with triton_http.InferenceServerClient(server.http) as client:
        assert client.get_server_metadata()["name"] == "mine"
        for call in (client.get_model_repository_index, client.get_log_settings):
            with pytest.raises(InferenceServerException, match="this API is restricted; it needs the header 'admin-key'"):
                call()
            assert call(headers={"admin-key": "s"})
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        assert client.get_model_repository_index().models
        with pytest.raises(InferenceServerException, match="triton-grpc-protocol-admin-key"):
            client.get_log_settings()
        assert client.get_log_settings(headers={"triton-grpc-protocol-admin-key": "s"}).settings
    assert "--pinned-memory-pool-byte-size: it tunes what is not here, and changes nothing" in server.errors()


def test_metrics_have_quantiles_and_a_histogram(server):
    def page():
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=PATIENCE) as response:
            return response.read().decode()

    def value(name):
        return float(re.search(rf"^{re.escape(name)} (\S+)$", page(), re.M)[1])

    labels = 'model="net",version="1"'
    before = value(f"nv_inference_request_summary_us_count{{{labels}}}"), value(
        f'nv_inference_first_response_histogram_ms_bucket{{{labels},le="+Inf"}}')
    failed = value(f'nv_inference_request_failure{{{labels},reason="OTHER"}}')
    with triton_http.InferenceServerClient(server.http) as client:
        for _ in range(5):
            client.infer("net", [given("INPUT_0", np.ones((1, 16), np.float32), "FP32")])
    with pytest.raises(urllib.error.HTTPError):  # which the front end refuses
        urllib.request.urlopen(f"http://{server.http}/v2/models/net/infer", b"{", timeout=PATIENCE)
    assert value(f"nv_inference_request_summary_us_count{{{labels}}}") == before[0] + 5
    assert value(f'nv_inference_request_summary_us{{{labels},quantile="0.5"}}') > 0
    assert value(f'nv_inference_first_response_histogram_ms_bucket{{{labels},le="+Inf"}}') == before[1] + 5
    assert value(f'nv_inference_request_failure{{{labels},reason="OTHER"}}') == failed + 1


def test_tls_for_both(repository, tmp_path):
    files = [a for name in ("http", "grpc") for a in (f"--{name}-use-ssl", f"--{name}-server-cert", TLS / "server.pem",
                                                      f"--{name}-server-key", TLS / "server.key")]
    x = np.ones((1, 16), np.float32)
    with served(repository, *files, folder=tmp_path) as server:
        port = re.search(r"https://127.0.0.1:(\d+)", "\n".join(server.lines))[1]
        trusted = ssl.create_default_context(cafile=TLS / "ca.pem")
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/v2/health/ready", context=trusted, timeout=PATIENCE) as response:
            assert response.status == 200
        with pytest.raises(urllib.error.URLError, match="(?i)certificate"):
            urllib.request.urlopen(f"https://127.0.0.1:{port}/v2", timeout=PATIENCE)
        with triton_http.InferenceServerClient(f"127.0.0.1:{port}", ssl=True, ssl_options={"ca_certs": str(TLS / "ca.pem")}) as client:
            answer = client.infer("net", [given("INPUT_0", x, "FP32")]).as_numpy("OUTPUT_0")
        with triton_grpc.InferenceServerClient(server.grpc, ssl=True, root_certificates=str(TLS / "ca.pem")) as client:
            tensor = triton_grpc.InferInput("INPUT_0", [1, 16], "FP32")
            tensor.set_data_from_numpy(x)
            np.testing.assert_array_equal(client.infer("net", [tensor]).as_numpy("OUTPUT_0"), answer)
        assert server.stop() == 0


def test_several_servers_share_a_port_where_they_are_told_to(repository, tmp_path):
    shared = ["--reuse-http-port", "true", "--reuse-grpc-port", "true"]
    with served(repository, *shared, folder=tmp_path) as first:
        ports = [a for name in ("http", "grpc") for a in (f"--{name}-port", getattr(first, name).rpartition(":")[2])]
        with served(repository, *shared, *ports, folder=tmp_path) as second:
            assert second.http == first.http and second.grpc == first.grpc
            assert first.stop() == 0
            with triton_http.InferenceServerClient(second.http) as client:
                assert client.is_server_ready()


def test_the_limit_of_descriptors_is_what_the_system_allows(repository, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with served(repository, folder=tmp_path) as server:
            with open(f"/proc/{server.process.pid}/limits") as file:
                limits = next(line for line in file if line.startswith("Max open files")).split()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits[3] == limits[4] and hard > 256


def test_links_are_followed_where_they_stay_beneath(tmp_path):
    models = tmp_path / "models"
    save(models / "..first", "net")
    os.symlink("..first", models / "..data")
    os.symlink("..data/net", models / "net")
    with served(models, "--follow-links", folder=tmp_path) as server:
        assert "ready    net 1" in server.lines
    os.symlink(tmp_path, models / "out")
    with served(models, "--follow-links", "--exit-on-error", "false", folder=tmp_path) as server:
        assert "leads out of its folder" in server.errors()
