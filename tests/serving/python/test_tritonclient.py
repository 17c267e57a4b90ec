"""The real tritonclient against sluice-serve: every method that it has, over HTTP and gRPC."""

import json
import queue
import time

import ml_dtypes  # the client needs it, too
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

import sluice as sl
from programs import PATIENCE, expected, save, served

TRANSPORTS = {"http": triton_http, "grpc": triton_grpc}
# (protocol's name, of an array, of the model's port): unsigned integers pass as the signed ones of the same bits.
DTYPES = [("BOOL", np.bool_, "bool"), ("UINT8", np.uint8, "uint8"), ("UINT16", np.uint16, "int16"), ("UINT32", np.uint32, "int32"),
          ("UINT64", np.uint64, "int64"), ("INT8", np.int8, "int8"), ("INT16", np.int16, "int16"), ("INT32", np.int32, "int32"),
          ("INT64", np.int64, "int64"), ("FP16", np.float16, "float16"), ("FP32", np.float32, "float32"), ("FP64", np.float64, "float64")]


class Echo(sl.nn.Graph):
    def build(self, x):
        return x.clone()


class Two(sl.nn.Graph):
    def build(self, a, b):
        return a - b, a * 2


def save_graph(graph, folder, *inputs):
    graph(*inputs)
    folder.parent.mkdir(parents=True, exist_ok=True)
    sl.save(graph, folder)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, _, dtype in DTYPES:
        model = root / f"echo_{name}"
        save_graph(Echo(name="echo"), model / "1" / "model", sl.zeros(2, 3, dtype=getattr(sl, dtype)))
        (model / "config.pbtxt").write_text(f"""
input {{ name: "INPUT_0" data_type: TYPE_{name} dims: [2, 3] }}
output {{ name: "OUTPUT_0" data_type: TYPE_{name} dims: [2, 3] }}""")
    save_graph(Echo(name="half"), root / "echo_BF16" / "1" / "model", sl.zeros(2, 3, dtype=sl.bfloat16))
    save_graph(Echo(name="text"), root / "echo_BYTES" / "1" / "model", sl.zeros(8, dtype=sl.uint8))
    (root / "echo_BYTES" / "config.pbtxt").write_text("""
input { name: "INPUT_0" data_type: TYPE_STRING dims: [1] }
output { name: "OUTPUT_0" data_type: TYPE_STRING dims: [1] }""")
    save_graph(Two(name="two"), root / "two" / "1" / "model", sl.zeros(3), sl.zeros(3))
    save(root, "net", version=1, seed=0)
    save(root, "net", version=2, seed=1, config="version_policy { all {} }")
    (root / "labelled").mkdir()
    save(root, "labelled", config="""
input { name: "INPUT_0" data_type: TYPE_FP32 dims: [1, 16] }
output { name: "OUTPUT_0" data_type: TYPE_FP32 dims: [1, 3] label_filename: "labels.txt" }""")
    (root / "labelled" / "labels.txt").write_text("cat\ndog\nbird\n")
    return root


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory):
    with served(repository, "--allow-shared-memory", "--shared-memory-prefix", "/sluice_test",
                folder=tmp_path_factory.mktemp("log")) as running:
        yield running


@pytest.fixture(scope="module", params=TRANSPORTS)
def triton(request):
    return TRANSPORTS[request.param]


@pytest.fixture
def client(triton, server):
    options = {"concurrency": 8} if triton is triton_http else {}
    with triton.InferenceServerClient(server.http if triton is triton_http else server.grpc, **options) as c:
        yield c


def given(triton, name, array, dtype="FP32", **options):
    tensor = triton.InferInput(name, list(array.shape), dtype)
    tensor.set_data_from_numpy(array, **options)
    return tensor


def asked(triton, name, **options):
    return triton.InferRequestedOutput(name, **options)


def as_dict(client, answer):
    """The answer as JSON, which gRPC gives as messages and HTTP as JSON."""
    if isinstance(answer, (dict, list)):
        return answer
    from google.protobuf.json_format import MessageToDict
    return MessageToDict(answer, preserving_proto_field_name=True)


def images(seed=0):
    return np.random.default_rng(seed).normal(size=(1, 16)).astype(np.float32)


def test_health(client):  # CLI-06
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("net") and client.is_model_ready("net", "2")
    assert not client.is_model_ready("net", "7") and not client.is_model_ready("nobody")


def test_metadata(client):  # CLI-03, CLI-05
    server = as_dict(client, client.get_server_metadata())
    assert server["name"] and server["version"] == sl.__version__
    assert {"classification", "binary_tensor_data", "statistics", "model_repository", "model_configuration"} <= set(server["extensions"])
    model = as_dict(client, client.get_model_metadata("two"))
    assert [i["name"] for i in model["inputs"]] == ["INPUT_0", "INPUT_1"]
    assert [o["name"] for o in model["outputs"]] == ["OUTPUT_0", "OUTPUT_1"]
    assert model["inputs"][0]["datatype"] == "FP32" and [int(d) for d in model["inputs"][0]["shape"]] == [3]


def test_config(client):  # SRV-09
    config = as_dict(client, client.get_model_config("net"))
    config = config.get("config", config)
    assert config["name"] == "net" and int(config.get("max_batch_size", 0)) == 0
    assert config["input"][0]["data_type"] == "TYPE_FP32" and [int(d) for d in config["input"][0]["dims"]] == [1, 16]


def test_results_are_those_in_process(client, triton, repository):  # CLI-10, SRV-16
    graph = sl.load_graph(repository / "net" / "2" / "model")
    for i in range(20):
        x = images(i)
        result = client.infer("net", [given(triton, "INPUT_0", x)])
        np.testing.assert_array_equal(result.as_numpy("OUTPUT_0"), expected(graph, x))


def test_versions_are_named(client, triton, repository):  # SRV-19
    x = images()
    for version in ("1", "2"):
        graph = sl.load_graph(repository / "net" / version / "model")
        result = client.infer("net", [given(triton, "INPUT_0", x)], model_version=version, request_id="abc42")
        np.testing.assert_array_equal(result.as_numpy("OUTPUT_0"), expected(graph, x))
        response = as_dict(client, result.get_response())
        assert response["id"] == "abc42" and response["model_version"] == version


def test_inputs_by_name_outputs_in_the_order_asked_for(client, triton):  # SRV-11
    a, b = np.float32([1, 2, 3]), np.float32([10, 20, 30])
    inputs = [given(triton, "INPUT_1", b), given(triton, "INPUT_0", a)]
    result = client.infer("two", inputs, outputs=[asked(triton, "OUTPUT_1"), asked(triton, "OUTPUT_0")])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT_0"), a - b)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT_1"), a * 2)
    response = as_dict(client, result.get_response())
    assert [o["name"] for o in response["outputs"]] == ["OUTPUT_1", "OUTPUT_0"]


@pytest.mark.parametrize("name, dtype", [(n, d) for n, d, _ in DTYPES])
def test_every_datatype_round_trips(client, triton, name, dtype):  # CLI-13
    x = np.arange(250, 256).reshape(2, 3).astype(dtype)
    result = client.infer(f"echo_{name}", [given(triton, "INPUT_0", x, name)])
    y = result.as_numpy("OUTPUT_0")
    assert y.dtype == x.dtype and np.array_equal(y, x)
    if triton is triton_http and name != "FP16":
        tensor = given(triton, "INPUT_0", x, name, binary_data=False)
        y = client.infer(f"echo_{name}", [tensor], outputs=[asked(triton, "OUTPUT_0", binary_data=False)]).as_numpy("OUTPUT_0")
        assert np.array_equal(y, x)


def test_halves_of_floats_and_texts_round_trip(client, triton):  # CLI-13
    x = np.array([[1, -2.5, 0], [3e38, 0.15625, np.inf]], ml_dtypes.bfloat16)
    y = client.infer("echo_BF16", [given(triton, "INPUT_0", x, "BF16")]).as_numpy("OUTPUT_0")
    np.testing.assert_array_equal(y.astype(np.float32), x.astype(np.float32))
    for text in (b"eight by", "grün é".encode(), b"\0\1\xff\xfe1234"):
        y = client.infer("echo_BYTES", [given(triton, "INPUT_0", np.array([text], object), "BYTES")]).as_numpy("OUTPUT_0")
        assert y.dtype == object and y.tolist() == [text]
        if triton is triton_http and text.isascii():
            tensor = given(triton, "INPUT_0", np.array([text.decode()], object), "BYTES", binary_data=False)
            y = client.infer("echo_BYTES", [tensor], outputs=[asked(triton, "OUTPUT_0", binary_data=False)]).as_numpy("OUTPUT_0")
            assert y.tolist() in ([text], [text.decode()])


def test_classification(client, triton, repository):  # CLI-09, CLI-11
    x = images(3)
    y = expected(sl.load_graph(repository / "labelled" / "1" / "model"), x)[0]
    order = np.argsort(-y)
    result = client.infer("labelled", [given(triton, "INPUT_0", x)], outputs=[asked(triton, "OUTPUT_0", class_count=2)])
    names = ["cat", "dog", "bird"]
    assert result.as_numpy("OUTPUT_0").tolist() == [f"{y[i]:f}:{i}:{names[i]}".encode() for i in order[:2]]
    result = client.infer("net", [given(triton, "INPUT_0", x)], model_version="1", outputs=[asked(triton, "OUTPUT_0", class_count=9)])
    y = expected(sl.load_graph(repository / "net" / "1" / "model"), x)[0]
    assert result.as_numpy("OUTPUT_0").tolist() == [f"{y[i]:f}:{i}".encode() for i in np.argsort(-y)]


def test_statistics_count(client, triton):  # TRI-09
    def stats():
        found, = as_dict(client, client.get_inference_statistics("echo_FP64"))["model_stats"]
        return int(found.get("inference_count", 0)), int(found.get("execution_count", 0)), int(found["inference_stats"].get("success", {}).get("count", 0))

    before = stats()
    for _ in range(10):
        client.infer("echo_FP64", [given(triton, "INPUT_0", np.zeros((2, 3)), "FP64")])
    assert [b - a for a, b in zip(before, stats())] == [10, 10, 10]


@pytest.mark.parametrize("request_algorithm", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_algorithm", [None, "gzip", "deflate"])
def test_compression_over_http(server, repository, request_algorithm, response_algorithm):  # CLI-18
    x = images()
    graph = sl.load_graph(repository / "net" / "2" / "model")
    with triton_http.InferenceServerClient(server.http) as client:
        result = client.infer("net", [given(triton_http, "INPUT_0", x)], request_compression_algorithm=request_algorithm,
                              response_compression_algorithm=response_algorithm)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT_0"), expected(graph, x))


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression_over_grpc(server, repository, algorithm):  # CLI-18
    x = images()
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        result = client.infer("net", [given(triton_grpc, "INPUT_0", x)], compression_algorithm=algorithm)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT_0"), expected(sl.load_graph(repository / "net" / "2" / "model"), x))


def test_a_hundred_in_flight(client, triton, repository):  # CLI-17
    graph = sl.load_graph(repository / "net" / "2" / "model")
    answers = queue.Queue()
    if triton is triton_http:
        calls = [client.async_infer("net", [given(triton, "INPUT_0", images(i))], request_id=str(i)) for i in range(100)]
        results = [call.get_result() for call in calls]
    else:
        for i in range(100):
            client.async_infer("net", [given(triton, "INPUT_0", images(i))], request_id=str(i),
                               callback=lambda result, error: answers.put((result, error)))
        got = [answers.get(timeout=PATIENCE) for _ in range(100)]
        assert not [error for _, error in got if error is not None]
        results = [result for result, _ in got]
    by_id = {as_dict(client, r.get_response())["id"]: r for r in results}
    assert len(by_id) == 100
    for i in range(100):
        np.testing.assert_array_equal(by_id[str(i)].as_numpy("OUTPUT_0"), expected(graph, images(i)))


def test_a_stream(server, repository):  # CLI-16, CLI-17
    graph = sl.load_graph(repository / "net" / "2" / "model")
    answers = queue.Queue()
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for i in range(200):
            client.async_stream_infer("net", [given(triton_grpc, "INPUT_0", images(i))], request_id=str(i))
        client.async_stream_infer("nobody", [given(triton_grpc, "INPUT_0", images())], request_id="wrong")
        got = [answers.get(timeout=PATIENCE) for _ in range(201)]
        client.stop_stream()
    errors = [error for _, error in got if error is not None]
    assert len(errors) == 1 and "Request for unknown model: 'nobody' is not found" in str(errors[0])
    by_id = {r.get_response().id: r for r, error in got if error is None}
    for i in range(200):
        np.testing.assert_array_equal(by_id[str(i)].as_numpy("OUTPUT_0"), expected(graph, images(i)))


def test_errors_are_told(client, triton):  # CLI-14
    x = given(triton, "INPUT_0", images())
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found"):
        client.infer("nobody", [x])
    with pytest.raises(InferenceServerException, match="(?i)version"):
        client.infer("net", [x], model_version="77")
    with pytest.raises(InferenceServerException, match="NOPE"):
        client.infer("net", [given(triton, "NOPE", images())])
    with pytest.raises(InferenceServerException, match="OUTPUT_9"):
        client.infer("net", [x], outputs=[asked(triton, "OUTPUT_9")])
    with pytest.raises(InferenceServerException, match="INPUT_0"):
        client.infer("net", [given(triton, "INPUT_0", images().astype(np.float64), "FP64")])
    with pytest.raises(InferenceServerException, match="INPUT_0"):
        client.infer("net", [given(triton, "INPUT_0", np.zeros((2, 16), np.float32))])
    with pytest.raises(InferenceServerException, match="INPUT_1"):
        client.infer("two", [given(triton, "INPUT_0", np.zeros(3, np.float32))])
    assert client.is_server_ready()


def test_shared_memory(client, triton, repository):  # CLI-20
    x = images(5)
    y = expected(sl.load_graph(repository / "net" / "2" / "model"), x)
    key = f"/sluice_test_{triton.__name__[-4:]}"
    handle = shm.create_shared_memory_region("both", key, x.nbytes + y.nbytes)
    try:
        shm.set_shared_memory_region(handle, [x])
        client.register_system_shared_memory("both", key, x.nbytes + y.nbytes)
        assert "both" in json.dumps(as_dict(client, client.get_system_shared_memory_status()))
        tensor = triton.InferInput("INPUT_0", [1, 16], "FP32")
        tensor.set_shared_memory("both", x.nbytes)
        output = asked(triton, "OUTPUT_0")
        output.set_shared_memory("both", y.nbytes, offset=x.nbytes)
        result = client.infer("net", [tensor], outputs=[output])
        assert "shared_memory_region" in json.dumps(as_dict(client, result.get_response()))
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [1, 3], offset=x.nbytes), y)
        with pytest.raises(InferenceServerException, match="registered already"):
            client.register_system_shared_memory("both", key, 4)
        tensor.set_shared_memory("both", x.nbytes, offset=1 << 62)
        with pytest.raises(InferenceServerException, match="shared memory: region 'both'"):
            client.infer("net", [tensor])
        with pytest.raises(InferenceServerException, match="must begin with '/sluice_test'"):
            client.register_system_shared_memory("other", "/other", 4)
        client.unregister_system_shared_memory("both")
        tensor.set_shared_memory("both", x.nbytes)
        with pytest.raises(InferenceServerException, match="there is no region 'both'"):
            client.infer("net", [tensor])
    finally:
        shm.destroy_shared_memory_region(handle)


def test_memory_of_cuda_is_refused_by_name(client):
    for call in (client.get_cuda_shared_memory_status, client.unregister_cuda_shared_memory,
                 lambda: client.register_cuda_shared_memory("r", b"aGFuZGxl", 0, 4)):
        with pytest.raises(InferenceServerException, match="that of CUDA is not offered; system shared memory is"):
            call()


def test_settings(client):  # TRI-11
    before = as_dict(client, client.get_log_settings())
    assert before
    client.update_log_settings({"log_verbose_level": 1})
    now = as_dict(client, client.get_log_settings())
    assert "1" in json.dumps(now.get("log_verbose_level", now))
    client.update_log_settings({"log_verbose_level": 0})
    assert as_dict(client, client.get_trace_settings())


def test_models_come_and_go(triton, repository, tmp_path):  # TRI-06
    models = tmp_path / "models"
    save(models, "net")
    with served(models, "--model-control-mode", "explicit", folder=tmp_path) as server:
        address = server.http if triton is triton_http else server.grpc
        with triton.InferenceServerClient(address) as client:
            def index():
                answer = as_dict(client, client.get_model_repository_index())
                return {m["name"]: m.get("state", "") for m in (answer if isinstance(answer, list) else answer.get("models", []))}

            assert not client.is_model_ready("net") and index()["net"] != "READY"
            client.load_model("net")
            assert client.is_model_ready("net") and index()["net"] == "READY"
            client.infer("net", [given(triton, "INPUT_0", images())])
            client.load_model("net", config=json.dumps({"max_batch_size": 0, "response_cache": {"enable": False}, "parameters": {
                "note": {"string_value": "as loaded"}}}))
            assert "as loaded" in json.dumps(as_dict(client, client.get_model_config("net")))
            client.unload_model("net")
            deadline = time.monotonic() + PATIENCE
            while client.is_model_ready("net"):
                assert time.monotonic() < deadline
            with pytest.raises(InferenceServerException, match="net"):
                client.infer("net", [given(triton, "INPUT_0", images())])
            with pytest.raises(InferenceServerException, match="nobody"):
                client.load_model("nobody")
            bundle = repository / "net" / "2" / "model"
            files = {f"file:1/model/{f.relative_to(bundle)}": f.read_bytes() for f in bundle.rglob("*") if f.is_file()}
            client.load_model("sent", config="{}", files=files)
            x = images(9)
            result = client.infer("sent", [given(triton, "INPUT_0", x)])
            np.testing.assert_array_equal(result.as_numpy("OUTPUT_0"), expected(sl.load_graph(bundle), x))


def test_wire_numbers_are_the_clients():
    """Every field that we know has the number and type that the client's own messages have."""
    import pathlib
    import subprocess
    import sys
    import tempfile

    from google.protobuf import descriptor_pb2
    from tritonclient.grpc import model_config_pb2, service_pb2

    proto = pathlib.Path(__file__).resolve().parents[3] / "serving" / "proto"
    with tempfile.TemporaryDirectory() as scratch:
        out = f"{scratch}/all.pb"
        subprocess.run(["protoc", f"-I{proto}", f"--descriptor_set_out={out}", "--include_imports", "inference.proto"], check=True,
                       stderr=sys.stderr)
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out).read_bytes())

    def flat(messages, prefix=""):
        for m in messages:
            for f in m.field:
                yield f"{prefix}{m.name}.{f.name}", (f.number, f.type, f.label, f.type_name)
            for e in m.enum_type:
                for v in e.value:
                    yield f"{prefix}{m.name}.{e.name}.{v.name}", v.number
            yield from flat(m.nested_type, f"{prefix}{m.name}.")

    theirs = {}
    for module in (model_config_pb2, service_pb2):
        parsed = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(parsed)
        theirs.update(flat(parsed.message_type))
    ours = {k: v for f in files.file for k, v in flat(f.message_type)}
    assert len(ours) > 200
    assert {k: v for k, v in ours.items() if theirs.get(k) != v} == {}


class Bags(sl.nn.Graph):
    """f(x) of all elements, and its sum over those of each request."""

    def __init__(self):
        super().__init__(name="bags")
        sl.manual_seed(0)
        self.f = sl.nn.Linear(1, 2)

    def build(self, x, ends):
        y = self.f(x.unsqueeze(1)).relu()
        before = (sl.arange(x.shape[0]) < ends.unsqueeze(1)).to(sl.float32) @ y
        return y, before - sl.cat([sl.zeros(1, 2), before[:-1]])


BAGS = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32 source_input: "x" }
"""


def save_bags(root, **configs):
    """A model of each name, with this behind its config."""
    graph = Bags()
    graph.config.set_dims({"x": {0: sl.Dim("elements", max=64, buckets=[16, 64], fit="exact")},
                           "ends": {0: sl.Dim("requests", max=8, buckets=[2, 8], fit="exact")}})
    with sl.no_grad():
        for name, config in configs.items():
            save_graph(graph, root / name / "1" / "model", sl.zeros(16), sl.tensor([3, 16], dtype=sl.int32))
            (root / name / "config.pbtxt").write_text(BAGS + config)


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    root = tmp_path_factory.mktemp("bags")
    save_bags(root, alone="", together="dynamic_batching { preferred_batch_size: [3] max_queue_delay_microseconds: 600000000 }")
    with served(root, folder=tmp_path_factory.mktemp("log")) as running:
        yield running


def test_requests_of_different_lengths_share_a_step(bags, triton):  # TRI-14
    """Lengths 3, 7 and 5 in one execution, without padding; outputs equal separate runs."""
    http, data = triton is triton_http, np.random.default_rng(1)
    with triton.InferenceServerClient(bags.http if http else bags.grpc, **({"concurrency": 3} if http else {})) as client:
        def executions():
            (stats,) = as_dict(client, client.get_inference_statistics("together"))["model_stats"]
            return int(stats.get("execution_count", 0)), int(stats.get("inference_count", 0))

        before = executions()
        asked_for, answers = [], queue.Queue()
        for length in (3, 7, 5):
            x = data.normal(size=(1, length)).astype(np.float32)
            asked_for.append(x)
            if http:
                answers.put((len(asked_for), client.async_infer("together", [given(triton, "x", x)], request_id=str(len(asked_for)))))
            else:
                client.async_infer("together", [given(triton, "x", x)], request_id=str(len(asked_for)),
                                   callback=lambda result, error: answers.put((result, error)))
        results = {}
        for _ in asked_for:
            first, second = answers.get(timeout=PATIENCE)
            result = second.get_result() if http else first
            assert http or second is None, second
            response = result.get_response()
            results[int(response["id"] if http else response.id)] = result
        for number, x in enumerate(asked_for, 1):
            alone = client.infer("alone", [given(triton, "x", x)])
            assert results[number].as_numpy("OUTPUT_0").shape == (1, x.shape[1], 2)
            for name in ("OUTPUT_0", "OUTPUT_1"):
                np.testing.assert_allclose(results[number].as_numpy(name), alone.as_numpy(name), rtol=1e-5, atol=1e-6)
        assert [after - b for after, b in zip(executions(), before)] == [1, 3]
        with pytest.raises(InferenceServerException, match="takes at most 64 rows in a step"):
            client.infer("alone", [given(triton, "x", np.zeros((1, 65), np.float32))])
