"""sluice-serve and sluice-perf as programs: their options, refusals, and what they draw."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import sluice as sl
from programs import PATIENCE, ROOT, Net, Served, expected, save, served
from sluice._base.tools import find_tool
from program_runs import ask, repository, run  # noqa: F401

GOLDEN = ROOT / "tests/golden"


@pytest.mark.parametrize("program", ["sluice-serve", "sluice-perf", "sluice-run", "sluice-info", "sluice-bench"])
def test_programs_tell_their_version(program):
    status, out, err = run("--version", program=program)
    assert status == 0 and sl.__version__ in out, (out, err)


@pytest.mark.parametrize("program", ["sluice-serve", "sluice-perf"])
def test_help_is_as_golden(program, request):
    status, out, _ = run("--help", program=program)
    assert status == 0
    golden = GOLDEN / f"{program}-help.txt"
    if os.environ.get("SLUICE_UPDATE_GOLDEN"):
        golden.write_text(out)
    assert words(out) == words(golden.read_text()), "SLUICE_UPDATE_GOLDEN=1 rewrites it"


def test_a_model_store_is_served(repository, tmp_path):  # SRV-12
    server = Served("--model-store", repository[0], folder=tmp_path)
    try:
        server.wait_for("ready")
        x = np.ones((1, 16), np.float32)
        body = {"inputs": [{"name": "INPUT_0", "datatype": "FP32", "shape": [1, 16], "data": x.ravel().tolist()}]}
        status, answer = ask(f"{server.http}/v2/models/net/infer", body)
        assert status == 200, answer
        np.testing.assert_array_equal(np.float32(answer["outputs"][0]["data"]), expected(repository[1], x).ravel())
    finally:
        assert server.stop() == 0


def words(text):
    """Without what versions of CLI11 do differently: defaults as TEXT=x or TEXT [x], and where columns begin."""
    return re.sub(r"(?<=[A-Z}\]]) \[([^\]]*)\]", r"=\1", text).split()


@pytest.mark.parametrize("arguments, status, text", [
    ([], 2, "no models: say where they are, as in sluice-serve --model-repository models"),
    (["--model-store", "/no/such/folder"], 1, "/no/such/folder"),
    (["--model-repository", "{models}", "--enable-tensorrt", "net"], 2, "--enable-tensorrt net: not built with TensorRT: there is no adapter"),
    (["--model-repository", "{models}", "--enable-tensorrt", "net"], 2, "cmake -DSLUICE_FOREIGN_BACKENDS=NAME=SOURCE"),
    (["--model-store", "{models}", "--enable-openvino", "net"], 2, "--enable-openvino net: the server writes no models of ONNX"),
    (["--model-store", "{models}", "--enable-openvino", "net"], 2, 'sl.load_graph(path, backend="openvino")'),
    (["--model-store", "{models}", "--enable-openvino", "net"], 2, "sluice-compile MODEL --backend onednn_graph --to bundle"),
    (["--model-repository", "{models}", "--backend", "/no/such/library.so"], 2, "the backend '/no/such/library.so' could not be loaded"),
    (["--model-repository", "{models}", "--memory-limit", "2 elephants"], 2, "--memory-limit: '2 elephants'; it must be a number of bytes"),
    (["--model-repository", "{models}", "--load-model", "net"], 2, "--load-model: it needs --model-control-mode explicit"),
    (["--model-repository", "{models}", "--rate-limit-resource", "disk"], 2, "--rate-limit-resource: 'disk'; it must be NAME:COUNT"),
    (["--model-repository", "{models}", "--trace-config", "opentelemetry,url=localhost:4318/v1/traces"], 2, "traces are written to a file only"),
    (["--model-repository", "{models}", "--trace-config", "rate=0"], 2, "--trace-config rate: '0'; it must be a whole number of at least 1"),
    (["--model-repository", "{models}", "--trace-config", "file=/no/such/folder/t"], 1, "/no/such/folder/t"),
    (["--model-repository", "{models}", "--allow-http", "false", "--allow-grpc", "false"], 2, "neither HTTP nor gRPC"),
    (["--model-repository", "{models}", "--http-address", "nowhere.invalid"], 1, "nowhere.invalid"),
    (["--model-repository", "{models}", "--management-token-file", "{models}"], 1, "--management-token-file"),
    (["--model-repository", "{models}", "--http-use-ssl"], 1, "http: TLS needs the server's certificate and its key"),
    (["--model-repository", "{models}", "--grpc-server-cert", "x"], 1, "grpc: there is a certificate or a key, and TLS is off"),
    (["--model-repository", "{models}", "--http-restricted-api", "all:k=v"], 2, "--http-restricted-api: 'all:k': 'all' is no group of calls"),
    (["--model-repository", "{models}", "--grpc-restricted-protocol", "health"], 2, "it must be APIS:HEADER=VALUE"),
    (["--model-repository", "{models}", "--metrics-config", "summary_quantiles=2"], 2, "--metrics-config summary_quantiles: '2'"),
    (["--model-repository", "{models}", "--log-file", "/no/such/folder/log"], 1, "/no/such/folder/log"),
    (["--model-repository", "{models}", "--model-control-mode", "explicit", "--load-model", "ghost", *"--http-port 0 --grpc-port 0 --metrics-port 0".split()], 1, "ghost"),
])
def test_what_cannot_be_done_is_said_in_a_sentence(repository, arguments, status, text):
    got, out, err = run(*[a.replace("{models}", str(repository[0])) for a in arguments])
    assert got == status and text in err, (got, out, err)
    assert "terminate" not in err and "0x" not in err


@pytest.mark.parametrize("name", ["http", "grpc", "metrics"])
def test_a_port_in_use_is_named(repository, name):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ports = [a for other in ("http", "grpc", "metrics") for a in (f"--{other}-port", port if other == name else "0")]
        status, _, err = run("--model-repository", repository[0], *ports)
    assert status == 1 and port in err and "use" in err, err


def test_plan_viz_shows_what_serves_a_model(tmp_path):
    """The queues, the batcher and the instances before the plans, as text, JSON and a picture."""
    models = tmp_path / "models"
    (models / "many/1").mkdir(parents=True)
    graph = Net(16)
    graph.config.set_dims({"x": {0: sl.Dim("batch", max=4, buckets=[1, 2, 4])}})
    graph(sl.zeros(4, 16))
    sl.save(graph, models / "many/1/model")
    (models / "many/config.pbtxt").write_text("""max_batch_size: 4 instance_group { count: 2 } instance_group { }
        dynamic_batching { preferred_batch_size: [2, 4] max_queue_delay_microseconds: 300 preserve_ordering: true
            priority_levels: 2 default_priority_level: 2 default_queue_policy { max_queue_size: 7 }
            priority_queue_policy { key: 1 value { default_timeout_microseconds: 5000 timeout_action: DELAY } } }""")
    save(models, "one")
    status, out, err = run("check", "--json", models)
    assert status == 0, out + err
    assert json.loads(out)["problems"] == []
    (tmp_path / "served.json").write_text(out)
    shown = ("served", tmp_path / "served.json")

    status, text, err = run(*shown, program="plan-viz")
    assert status == 0, text + err
    wanted = [r"model 'many' version 1", r"requests +INPUT_0 FP32\[<=4,16\]", r"queue +priority 1: 256 places, after 5 ms behind the others; beyond, refused",
              r"queue +priority 2: 7 places; beyond, refused", r"batcher +requests share steps of 4 rows at most", r"2, 4 rows do not wait for more",
              r"others wait for more, 300 us at most", r"answers come in the order of requests", r"instance 0 +\S+/many/",
              r"batch 1 .*actors.*kernels.*in flight.*of slots", r"batch 4 .*actors", r"instance 1 ", r"instance 2 ", r"answers +OUTPUT_0 FP32\[<=4,3\]",
              r"model 'one' version 1", r"queue +256 places; beyond, refused", r"batcher +one request a step", r"instance 0 ", r"every step .*actors"]
    assert re.search(".*".join(wanted), text, re.S), text

    many, = json.loads(run(*shown, "--model", "many", "--json", program="plan-viz")[1])["models"]
    assert many["instances"] == 3 and [plan["sizes"] for plan in many["plans"]] == [f"batch {n}" for n in (1, 2, 4)]
    assert [queue["places"] for queue in many["queues"]] == [256, 7] and all(plan["bytes"] > 0 for plan in many["plans"])

    status, out, err = run(*shown, "-o", tmp_path / "served.svg", program="plan-viz")
    assert status == 0, out + err
    drawn = [node.text for node in ElementTree.parse(tmp_path / "served.svg").iter() if node.text and node.text.strip()]
    for text in ("many 1", "one 1", "batcher", "instance 2", "priority 2: 7 places", "batch 4", "2, 4 rows do not wait for more"):
        assert text in drawn, drawn

    status, _, err = run(*shown, "--model", "ghost", program="plan-viz")
    assert status == 2 and "no model 'ghost'; it has many, one" in err
    (tmp_path / "served.json").write_text('{"models": [{"name": 3}]}')
    status, _, err = run(*shown, program="plan-viz")
    assert status == 2 and "give what `sluice-serve check --json` prints" in err
    (models / "one/1/model/plan.json").write_text("{")
    status, out, _ = run("check", "--json", models)
    assert status == 1 and len(json.loads(out)["models"]) == 1 and "'one'" in json.loads(out)["problems"][0]


def test_perf_tunes_a_model(tmp_path):
    """TRI-15: every candidate is measured, and the best of what was measured is loaded."""
    save(tmp_path / "models", "many", batch=4, config="max_batch_size: 4\n")
    arguments = "--tune --concurrency 4,8 --tune-delays 300 --warmup-secs 0.05 --window-secs 0.1 --windows 1 --max-windows 1".split()
    with served(tmp_path / "models", "--model-control-mode", "explicit", "--load-model", "many", folder=tmp_path) as server:
        status, out, err = run("-m", "many", "-u", server.http, "--json", tmp_path / "levels.json", *arguments, program="sluice-perf")
        assert status == 0, out + err
        names = re.findall(r"^(\d+ instances?.*)$", out, re.M)
        assert names == [f"{n}{more}" for n in ("1 instance", "2 instances") for more in ("", ", batching", ", batching, delay 300 us")]
        levels = json.loads((tmp_path / "levels.json").read_text())["levels"]
        assert len(levels) == 12 and all(level["throughput_per_s"] > 0 for level in levels)
        best = max(range(12), key=lambda i: levels[i]["throughput_per_s"])
        said = re.search(r"^best: (.*), ([\d.]+) requests a second; in config.pbtxt:\ninstance_group { count: (\d) }\n(.*)", out, re.M)
        assert said and said[1] == names[best // 2] and abs(float(said[2]) - levels[best]["throughput_per_s"]) < 0.1
        config = ask(f"{server.http}/v2/models/many/config")[1]
        assert config["instance_group"][0]["count"] == int(said[3])
        assert ("dynamic_batching" in config) == ("dynamic_batching" in said[4]) == ("batching" in said[1])
        assert run("--tune", "--get", "/v2", "-u", server.http, program="sluice-perf")[0] == 2
    with served(tmp_path / "models", folder=tmp_path) as server:
        status, _, err = run("-m", "many", "-u", server.http, *arguments, program="sluice-perf")
        assert status == 2 and "explicit" in err


def test_the_served_config_is_told(repository, tmp_path):
    """TRI-11: what the server made of a model without a config."""
    with served(repository[0], folder=tmp_path) as server:
        status, config = ask(f"{server.http}/v2/models/net/config")
        assert status == 200
        assert config["input"][0] | {"name": "INPUT_0", "data_type": "TYPE_FP32", "dims": [1, 16]} == config["input"][0]
        assert config["max_batch_size"] == 0 and config["instance_group"][0]["count"] == 1


def test_perf_measures_levels_and_draws_them(repository, tmp_path):
    """CLI-22, TRI-15."""
    files = {name: tmp_path / f"load.{name}" for name in ("svg", "csv", "json")}
    with served(repository[0], folder=tmp_path) as server:
        quick = ["-u", server.http, "--warmup-secs", "0.1", "--window-secs", "0.2", "--max-windows", "3", "--expect"]
        status, out, err = run("-m", "net", "--concurrency", "1:8", *quick, "--picture", files["svg"], "--csv", files["csv"], "--json",
                               files["json"], program="sluice-perf")
        assert status == 0, out + err
        levels = json.loads(files["json"].read_text())["levels"]
        assert [level["concurrency"] for level in levels] == list(range(1, 9))
        for level in levels:
            t = level["latency_us"]
            assert t["p50"] <= t["p90"] <= t["p95"] <= t["p99"] <= t["max"] and level["errors"] == {} and level["different"] == 0
            assert level["throughput_per_s"] == pytest.approx(t["count"] / level["seconds"], rel=1e-3)
            assert level["server"]["requests"] >= t["count"] and level["server"]["compute_infer_us"] > 0
        assert files["csv"].read_text().count("\n") == 9
        assert files["svg"].read_text().count("<circle") == 24
        status, out, err = run("-m", "net", "--request-rate", "50,100", "--constant", *quick, program="sluice-perf")
        assert status == 0 and "50/s" in out and "100/s" in out, out + err
        for target, status in ((1, 0), (1e9, 3)):  # LAD-09
            got, out, _ = run("-m", "net", "--concurrency", "2", "--target-qps", target, "--latency-limit-ms", 60_000, *quick, program="sluice-perf")
            assert got == status and f"target: {'missed' if status else 'met'}: at most " in out, out
        assert "answered within 0.001 ms" in run("-m", "net", "--target-qps", 1, "--latency-limit-ms", 0.001, *quick, program="sluice-perf")[1]
        status, _, err = run("-m", "ghost", *quick, program="sluice-perf")
        assert status == 2 and "ghost" in err
        status, _, err = run("-m", "net", "--batch", "3", *quick, program="sluice-perf")
        assert status == 2 and "batch 3" in err
        address = server.http
    status, _, err = run("-m", "net", "-u", address, program="sluice-perf")
    assert status == 2 and "is sluice-serve running there?" in err


def test_the_entry_script_of_the_container_serves(repository, tmp_path):
    """SRV-13: the script that the Dockerfile installs, outside of a container."""
    script = ROOT / "examples/serving/deploy/entrypoint.sh"
    env = os.environ | {"SLUICE_SERVE": find_tool("sluice-serve"), "SLUICE_MODELS": str(repository[0]), "SLUICE_ADDRESS": "127.0.0.1"}
    process = subprocess.Popen(["sh", script, "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"], env=env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        http = ""
        for line in process.stdout:
            if line.startswith("http "):
                http = line.split()[1].removeprefix("http://")
            if line.startswith("ready"):
                break
        client = subprocess.run([sys.executable, "-c", (
            "import sys, numpy as np, tritonclient.http as h\nc = h.InferenceServerClient(sys.argv[1])\n"
            "x = h.InferInput('INPUT_0', (1, 16), 'FP32'); x.set_data_from_numpy(np.ones((1, 16), np.float32))\n"
            "print(c.infer('net', [x]).as_numpy('OUTPUT_0').tolist())"), http], capture_output=True, text=True, timeout=PATIENCE)
        x = np.ones((1, 16), np.float32)
        assert np.allclose(json.loads(client.stdout), expected(repository[1], x), atol=1e-5), client.stderr
        process.send_signal(signal.SIGTERM)  # as docker stop does; the script has become the server
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def test_the_files_for_deployment_fit_the_server(tmp_path):
    """Their options exist, their paths are those of the packages, and the dashboard asks for metrics that are there."""
    deploy = ROOT / "examples/serving/deploy"
    _, help_text, _ = run("--help")
    for name in ("sluice-serve.service", "entrypoint.sh"):
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", (deploy / name).read_text()):
            assert option in help_text or option.startswith("--now"), (name, option)
    dockerfile = (deploy / "Dockerfile").read_text()
    for line in re.findall(r"^(\w+)", dockerfile, re.M):
        assert line in ("FROM", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"), line
    for source in re.findall(r"^COPY (\S+)", dockerfile, re.M):
        assert source == "*.deb" or (deploy / source).exists()
    dashboard = json.loads((deploy / "dashboard.json").read_text())
    metrics = {name for panel in dashboard["panels"] for target in panel["targets"] for name in re.findall(r"nv_\w+", target["expr"])}
    told = (ROOT / "serving/execution/metrics.cpp").read_text()
    assert metrics and all(f'"{name}"' in told for name in metrics), metrics
    fresh = subprocess.run([sys.executable, "-c", "import json, make_dashboard as m; print(json.dumps(m.dashboard()))"], cwd=deploy,
                           env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True)
    assert json.loads(fresh.stdout) == dashboard, "run make_dashboard.py"
