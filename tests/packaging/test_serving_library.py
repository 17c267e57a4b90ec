"""The inference server as a library, for C++ and C; and a client of one header."""

import http.client
import json
import os
import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice.serving import Server
from test_cpp_packages import BUILD, HERE, ROOT, build, compare, exported, pkg_config, run

if not (BUILD / "libsluice_serving.so").exists():
    pytest.skip("built without the server", allow_module_level=True)

X = (np.arange(16, dtype=np.float32) / 8 - 1).reshape(1, 16)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    path = tmp_path_factory.mktemp("prefix")
    for component in ("cpp", "serving"):
        run("cmake", "--install", BUILD, "--prefix", path, "--component", component)
    return path


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A repository with a model, and what it makes of X."""
    class Net(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = sl.nn.Sequential(sl.nn.Linear(16, 32), sl.nn.ReLU(), sl.nn.Linear(32, 3)).eval()

        def build(self, x):
            return self.net(x)

    sl.manual_seed(0)
    graph, root = Net(), tmp_path_factory.mktemp("models")
    expected = graph(sl.from_numpy(X)).numpy()
    (root / "net/1").mkdir(parents=True)
    sl.save(graph, root / "net/1/model")
    return root, expected


def test_what_is_installed(prefix):
    assert (prefix / "include/sluice/serving.hpp").exists() and (prefix / "include/sluice/sluice_server.h").exists()
    dynamic = run("readelf", "-d", prefix / "lib/libsluice_serving.so")
    major_minor = ".".join(sl.__version__.split(".")[:2])
    assert f"soname: [libsluice_serving.so.{major_minor}]" in dynamic and "(RUNPATH)            Library runpath: [$ORIGIN]" in dynamic
    assert f"[libsluice.so.{major_minor}]" in dynamic  # one engine, which the program may use as well
    assert pkg_config(prefix, "--modversion", "sluice_serving") == [sl.__version__]


def test_exported_symbols_are_those_listed(prefix):
    """SLUICE_UPDATE=1 writes the list anew: review the difference, it is the interface."""
    symbols = exported(prefix / "lib/libsluice_serving.so")
    listed = HERE / "abi/sluice_serving.txt"
    if os.environ.get("SLUICE_UPDATE"):
        listed.write_text("".join(f"{s}\n" for s in symbols))
    difference = compare(listed.read_text().splitlines(), symbols)
    assert not difference, "\n".join(difference) + "\nif this is meant: SLUICE_UPDATE=1, and raise the version when something went"
    assert all("sluice::api::serving::" in s or s.startswith("sluice_server_") for s in symbols)


def test_in_c(prefix, net, tmp_path):  # TRI-16
    """Every function; wrong arguments, handles that are gone, a hundred requests at once."""
    run("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", HERE / "serving_consumer.c", "-o", tmp_path / "consumer",
        *pkg_config(prefix, "--cflags", "--libs", "sluice_serving"), "-lpthread")
    lines = run(tmp_path / "consumer", net[0], env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}).splitlines()
    assert [float.fromhex(v) for v in lines[0].split()] == net[1][0].tolist()
    best = int(net[1].argmax())
    assert lines[1] == f"{net[1][0, best]:f}:{best}"
    assert json.loads(lines[2])["inputs"] == [{"name": "INPUT_0", "datatype": "FP32", "shape": [1, 16]}]


@pytest.fixture(scope="module")
def embedded(prefix, tmp_path_factory):
    where = build(ROOT / "examples/serving/embedded", tmp_path_factory.mktemp("embedded"), f"-DCMAKE_PREFIX_PATH={prefix}")
    return where / "embedded"


def test_within_a_program_with_an_http_of_its_own(prefix, embedded, net):  # TRI-16
    process = subprocess.Popen([embedded, net[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={})
    try:
        port = int(process.stdout.readline())

        def ask(method, path, body=None):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read().decode()

        status, text = ask("POST", "/scores/net", X.tobytes())
        assert status == 200
        np.testing.assert_allclose([float(v) for v in text.split()], net[1][0], rtol=1e-5)
        assert ask("POST", "/scores/nobody", X.tobytes()) == (400, "Request for unknown model: 'nobody' is not found\n")
        status, text = ask("POST", "/scores/net", X.tobytes()[:8])
        assert status == 400 and "INPUT_0" in text
        assert ask("GET", "/v2/health/ready")[0] == 200
        assert json.loads(ask("GET", "/v2/models/net/stats")[1])["model_stats"][0]["inference_stats"]["success"]["count"] == 1
        assert json.loads(ask("POST", "/v2/repository/index", "{}")[1])[0]["state"] == "READY"
        assert ask("POST", "/v2/models/net/infer", "{}")[0] == 501
        assert "nv_inference_request_success" in ask("GET", "/metrics")[1]
    finally:
        process.stdin.close()
        assert process.wait(120) == 0
        process.stdout.close()


def test_a_repository_that_cannot_be_served_is_told(prefix, embedded, tmp_path):
    for folder, part in ((tmp_path / "nothing", "nothing"), (tmp_path, "broken")):
        (tmp_path / "broken/1/model").mkdir(parents=True, exist_ok=True)
        done = subprocess.run([embedded, folder], env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and part in done.stderr, done.stderr


def test_headers_compile_alone(prefix, tmp_path):
    for header, compiler, standard in (("serving.hpp", "c++", "c++20"), ("sluice_server.h", "c++", "c++20"), ("sluice_server.h", "cc", "c99")):
        source = tmp_path / f"alone.{'c' if compiler == 'cc' else 'cpp'}"
        source.write_text(f"#include <sluice/{header}>\n")
        run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{prefix / 'include'}", source)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    program = tmp_path_factory.mktemp("client") / "client"
    run("c++", "-std=c++17", "-Wall", "-Wextra", "-Wno-restrict", "-Werror", ROOT / "examples/serving/cpp_client/main.cpp", "-o", program)
    return program


def test_a_client_of_one_header(client, net, tmp_path):  # CLI-15
    (tmp_path / "x.f32").write_bytes(X.tobytes())
    order = np.argsort(-net[1][0])
    with Server(net[0]) as server:
        host, port = server.http_url.removeprefix("http://").split(":")
        text = run(client, host, port, "net", tmp_path / "x.f32", 2, 1, 16)
        assert text.splitlines() == [f"{net[1][0, i]:f}:{i}" for i in order[:2]]
        values = [float(v) for v in run(client, host, port, "net", tmp_path / "x.f32", 0, 1, 16).split()]
        np.testing.assert_allclose(values, net[1][0], rtol=1e-5)
        wrong = subprocess.run([client, host, port, "nobody", tmp_path / "x.f32", "1", "1", "16"], capture_output=True, text=True)
        assert (wrong.returncode, wrong.stderr) == (1, "Request for unknown model: 'nobody' is not found\n")
    away = subprocess.run([client, host, port, "net", tmp_path / "x.f32", "1", "1", "16"], capture_output=True, text=True)
    assert away.returncode == 1 and f"{host}:{port}" in away.stderr
